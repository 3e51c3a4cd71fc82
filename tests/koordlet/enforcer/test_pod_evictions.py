"""Evictions of pods: asked for at the API server, in the strategy's order, never by a signal, never by waiting."""

import os
import queue
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from api.intents import Evict, Strength
from api.qos import QoSClass, QoSSource
from koordlet.config import EnforcerSettings
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import EnforcerEvent
from koordlet.enforcer.evictions.pace import Pace
from koordlet.enforcer.evictions.pod_rules import Answer, EvictionAnswer, backoff_seconds, refusal
from koordlet.enforcer.writer import KernelWriter
from koordlet.identity.pods import PodFacts, PodTable
from tests.frames import cgroup_info
from tests.koordlet.enforcer.hosts import FakeHost
from tests.waiting import wait_for

NAMES = ("a", "b", "z")
UIDS = {name: f"1234567{number}-1234-1234-1234-123456789012" for number, name in enumerate(NAMES)}
PATHS = {name: f"/kubepods/besteffort/pod{uid}" for name, uid in UIDS.items()}


def facts(name: str, **changes: object) -> PodFacts:
    given = {
        "name": f"shop/{name}",
        "uid": UIDS[name],
        "cgroup_uid": UIDS[name],
        "cgroup_path": PATHS[name],
        "workload": f"Deployment/shop/{name}",
        "qos": QoSClass.BE,
    }
    return PodFacts(**(given | changes))  # type: ignore[arg-type]


class FakeEvictor:
    """Answers as told, one request at a time, when the test lets it."""

    def __init__(self, *answers: EvictionAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.may_answer = threading.Semaphore(0)

    def evict(self, pod: PodFacts, reason: str) -> EvictionAnswer:
        self.asked.append(pod.name)
        self.may_answer.acquire(timeout=30)
        if not self.answers:
            raise RuntimeError("the connection broke")
        return self.answers.pop(0)


class Scene:
    def __init__(
        self, root: Path, evictor: FakeEvictor | None, pods: tuple[PodFacts, ...] = (), **settings: object
    ) -> None:
        self.host = FakeHost(root)
        self.signals: list[int] = []
        for path in PATHS.values():
            self.host.make(path)
        scene = self

        class Deaf(KernelWriter):
            def signal(self, directory: Path, number: int) -> int:
                scene.signals.append(number)
                return 1

        self.enforcer: Enforcer = self.host.enforcer(
            writer=Deaf(), **({"evict": True, "evict_cooldown_seconds": 10.0} | settings)
        )
        self.table = PodTable(pods or tuple(map(facts, NAMES)), generation=1)
        self.evictor = evictor
        if evictor is not None:
            self.enforcer.evict_pods_by(evictor, lambda: self.table)
        self.cgroups = tuple(cgroup_info(number, path, qos="BE") for number, path in enumerate(PATHS.values(), 2))

    def step(self, *names: str, seconds: float = 1.0) -> dict[str, str]:
        """Outcome by pod of one step with evictions in this order."""
        intents = [self.intent(PATHS.get(name, name)) for name in names]
        return self.told(self.enforcer.step(intents, self.cgroups, self.host.later(seconds)))

    @staticmethod
    def intent(path: str) -> Evict:
        return Evict(strategy="memory_evict", target=path, reason="memory is short", strength=Strength.DRASTIC)

    def told(self, events: list[EnforcerEvent]) -> dict[str, str]:
        named = {path: name for name, path in PATHS.items()}
        return {named.get(event.target, event.target): event.outcome.value for event in events if event.knob == "evict"}

    def answered(self, *names: str, seconds: float = 1.0) -> dict[str, str]:
        """The answer to the request under way, and the outcomes of the step that hears of it."""
        assert self.evictor is not None
        self.evictor.may_answer.release()
        answers: queue.SimpleQueue[object] = self.enforcer._one_shot._pod_evictions._answers  # type: ignore[union-attr, assignment]
        wait_for(lambda: not answers.empty())
        return self.step(*names, seconds=seconds)


ACCEPTED = EvictionAnswer(Answer.ACCEPTED)
BUDGET = EvictionAnswer(Answer.BUDGET, "the budget web needs 2 pods and has 2")


def test_in_the_order_of_the_strategy_one_at_a_time(tmp_path: Path) -> None:
    evictor = FakeEvictor(ACCEPTED, ACCEPTED)
    scene = Scene(tmp_path, evictor)
    assert scene.step("z", "b", "a") == {"z": "evicting", "b": "cooldown", "a": "cooldown"}
    assert scene.step("z", "b", "a") == {"b": "cooldown", "a": "cooldown"}, "the tick waits for no answer"
    assert scene.answered("b", "a") == {"z": "evicted", "b": "cooldown", "a": "cooldown"}
    assert scene.step("b", "a", seconds=10) == {"b": "evicting", "a": "cooldown"}
    assert scene.answered("b") == {"b": "evicted"}
    assert evictor.asked == ["shop/z", "shop/b"]
    assert scene.signals == []
    scene.enforcer.close(scene.host.later(1))


def test_a_budget_that_forbids_it_gives_way_to_the_next_and_is_asked_again_later(tmp_path: Path) -> None:
    evictor = FakeEvictor(BUDGET, ACCEPTED, ACCEPTED)
    scene = Scene(tmp_path, evictor)
    scene.step("a", "b")
    assert scene.answered("a", "b") == {"a": "backing_off", "b": "evicting"}, "no cool-down for what did not begin"
    assert scene.answered("a") == {"b": "evicted", "a": "backing_off"}
    assert scene.step("a", seconds=20) == {"a": "evicting"}
    assert scene.answered() == {"a": "evicted"}
    scene.enforcer.close(scene.host.later(1))


def test_a_client_that_breaks_costs_one_answer(tmp_path: Path) -> None:
    evictor = FakeEvictor()
    scene = Scene(tmp_path, evictor)
    scene.step("a")
    assert scene.answered() == {"a": "failed"}
    assert scene.step("a") == {"a": "backing_off"}
    evictor.answers.append(ACCEPTED)
    scene.step("a", seconds=30)
    assert scene.answered() == {"a": "evicted"}
    scene.enforcer.close(scene.host.later(1))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        pytest.param("a", "refused", id="pod"),
        pytest.param("/kubepods/besteffort", "refused", id="the-kubelets-directory"),
        pytest.param("/kubepods/besteffort/pod99999999-1234-1234-1234-123456789012", "refused", id="unknown-pod"),
    ],
)
def test_without_an_api_server_no_pod_is_evicted(tmp_path: Path, target: str, told: str) -> None:
    scene = Scene(tmp_path, None)
    scene.host.file(PATHS["a"], "cgroup.procs").write_text("1\n")
    assert scene.step(target) == {target: told}
    assert scene.signals == []


def test_a_directory_that_claims_a_pods_uid_evicts_nobody(tmp_path: Path) -> None:
    evictor = FakeEvictor(ACCEPTED)
    scene = Scene(tmp_path, evictor)
    claim = f"/machine.slice/kubepods/pod{UIDS['a']}"
    scene.host.make(claim)
    assert scene.step(claim) == {claim: "gone"}, "it is a cgroup like any other, without a process"
    assert evictor.asked == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({}, "", id="ordinary"),
        pytest.param({"static": True}, "static", id="static"),
        pytest.param({"priority": 2_000_001_000}, "critical", id="node-critical"),
        pytest.param({"qos": QoSClass.SYSTEM}, "SYSTEM", id="system"),
        pytest.param({"workload": "DaemonSet/kube-system/proxy"}, "DaemonSet", id="daemon"),
        pytest.param({"workload": "shop/a"}, "evict_ownerless", id="ownerless"),
        pytest.param({"uid": ""}, "uid", id="not-at-the-api-server"),
    ],
)
def test_who_is_never_evicted(changes: dict[str, object], told: str) -> None:
    found = refusal(facts("a", **changes), with_ownerless=False)
    assert bool(found) == bool(told)
    assert told in found


def test_ownerless_pods_by_setting(tmp_path: Path) -> None:
    bare = facts("a", workload="shop/a")
    assert Scene(tmp_path / "1", FakeEvictor(), (bare,)).step("a") == {"a": "refused"}
    scene = Scene(tmp_path / "2", FakeEvictor(ACCEPTED), (bare,), evict_ownerless=True)
    assert scene.step("a") == {"a": "evicting"}
    assert scene.answered() == {"a": "evicted"}
    scene.enforcer.close(scene.host.later(1))


def test_a_dry_run_asks_nobody(tmp_path: Path) -> None:
    evictor = FakeEvictor()
    scene = Scene(tmp_path, evictor, dry_run=True)
    assert scene.step("a", "b") == {"a": "evicted", "b": "cooldown"}
    assert evictor.asked == []


def test_a_pod_that_is_ending_already_is_not_asked_for(tmp_path: Path) -> None:
    evictor = FakeEvictor()
    scene = Scene(tmp_path, evictor, (facts("a", active=False),))
    assert scene.step("a") == {}
    assert evictor.asked == []


def test_so_many_an_hour() -> None:
    pace = Pace(1.0, 2)
    for second in (0.0, 10.0):
        assert pace.reason(second) == ""
        pace.note(second)
    assert "in an hour" in pace.reason(60.0)
    assert pace.reason(3601.0) == ""


def test_the_back_off_grows_to_a_bound_and_heeds_the_server() -> None:
    seconds = [backoff_seconds(BUDGET, refusals, 0.0) for refusals in (1, 2, 3, 30)]
    assert seconds == [10.0, 20.0, 40.0, 300.0]
    assert backoff_seconds(EvictionAnswer(Answer.BUDGET, "", 77.0), 1, 0.0) == 77.0
    assert backoff_seconds(BUDGET, 1, 1.0) == 12.5


def test_settings_are_safe_by_default() -> None:
    assert (EnforcerSettings().evict, EnforcerSettings().evict_ownerless) == (False, False)


def test_on_a_plain_host_processes_that_do_not_end_are_given_up(tmp_path: Path) -> None:
    scene = Scene(tmp_path, None)
    scene.host.make("/batch")
    scene.host.file("/batch", "cgroup.procs").write_text(f"{os.getpid()}\n")
    intent = scene.intent("/batch")
    told = []
    for _ in range(60):
        told += [event.outcome.value for event in scene.enforcer.step([intent], scene.cgroups, scene.host.later(1))]
    assert told[:2] == ["terminated", "killed"]
    assert told.count("killed") == told.count("failed") == 1
    assert set(told[told.index("failed") + 1 :]) == {"backing_off"}
    assert signal.SIGTERM in scene.signals
    scene.enforcer.close(scene.host.later(1))


def test_a_host_application_in_the_kubelets_directory_is_signalled(tmp_path: Path) -> None:
    scene = Scene(tmp_path, FakeEvictor())
    path = "/kubepods/besteffort/hadoop-yarn/container_1410901177871_0001_01_000002"
    scene.host.make(path)
    scene.host.file(path, "cgroup.procs").write_text("4711\n")
    assert scene.step(path) == {path: "refused"}, "nobody says what it is"
    named = replace(cgroup_info(99, path, qos="BE"), qos_source=QoSSource.NODE_SLO)
    scene.cgroups = (*scene.cgroups, named)
    assert scene.step(path) == {path: "terminated"}
    assert scene.signals == [15]


def test_a_pod_is_never_signalled_whatever_the_node_slo_calls_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, None)
    scene.cgroups = tuple(replace(each, qos_source=QoSSource.NODE_SLO) for each in scene.cgroups)
    assert scene.step("a") == {"a": "refused"}
    assert scene.signals == []
