"""Steps of the control loop: intents of strategies reach the enforcer, annotated pods are spared, results counted."""

import errno
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from api.intents import Intent, Knob, Strength
from api.qos import QoSClass
from api.window import Window
from detector.baselines.values import Judgement
from detector.judging.signals import Turnarounds
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.control_loop import ControlLoop
from koordlet.control.fast_path import FastPath
from koordlet.control.node_view import NodeViewBuilder
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.evictions.pod_rules import Answer, EvictionAnswer
from koordlet.enforcer.guardian.guardian import Guardian
from koordlet.enforcer.outcomes import IntentResult
from koordlet.host.knobs.knobs import Knobs
from koordlet.identity.kubelet_policy import KubeletPolicy
from koordlet.identity.pods import ANNOTATION_PROTECTED, PodFacts, PodTable
from koordlet.response.observation import Observation
from koordlet.response.policy import Refusal, ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import Refused
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import NodeView
from koordlet.tick import Tick
from probes.tripwire import Trip, Tripwire
from tests.frames import make_frame
from tests.koordlet.enforcer.hosts import FakeHost, want
from tests.koordlet.enforcer.test_pod_evictions import FakeEvictor
from tests.waiting import wait_for

UID = "12345678-1234-1234-1234-123456789012"
POD = f"/kubepods/besteffort/pod{UID}"
PATHS = {1: "/", 2: "/kubepods", 3: "/kubepods/besteffort", 4: POD}


class Capping(Strategy[StrategySettings]):
    section = "extensions.capping"
    settings_type = StrategySettings

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        return [self.set_knob(pod.path, Knob.CPU_MAX, "50000 100000", "because") for pod in view.pods]


def control_loop(
    tmp_path: Path, annotations: Mapping[str, str], *, strategy: Strategy[Any] | None = None, **settings: Any
) -> tuple[FakeHost, ControlLoop]:
    host = FakeHost(tmp_path)
    for path in PATHS.values():
        host.make(path)
    knobs = Knobs(host.tree)
    facts_of = {UID: PodFacts("shop/batch", annotations=annotations)}.get
    made = ControlLoop(
        ResponsePolicy(ResponseSettings()),
        host.enforcer(**settings),
        CapabilityReader(host.tree, knobs, "/agent"),
        strategies=StrategyRunner({"capping": strategy or Capping()}),
        node_view=NodeViewBuilder(host.tree, knobs, facts_of),
        facts_of=facts_of,
    )
    return host, made


def make_tick(turnarounds: Turnarounds | None = None) -> Tick:
    frames = [make_frame(second, PATHS, {"cpustat.usage_ns": [0] * len(PATHS)}) for second in (1.0, 2.0)]
    return Tick.of(Window(frames), turnarounds=turnarounds)


@pytest.mark.parametrize(
    ("annotations", "result", "quota"),
    [({}, IntentResult.APPLIED, "50000 100000"), ({ANNOTATION_PROTECTED: "true"}, IntentResult.DECLINED, "max 100000")],
    ids=["plain", "annotated"],
)
def test_an_annotated_pod_is_spared(
    tmp_path: Path, annotations: dict[str, str], result: IntentResult, quota: str
) -> None:
    host, made = control_loop(tmp_path, annotations)
    made.step(make_tick())
    strategy = Capping().name
    assert dict(made.intent_counts) == {(strategy, IntentResult.REQUESTED): 1, (strategy, result): 1}
    assert host.text(POD, "cpu.max") == quota
    made.close()
    assert host.text(POD, "cpu.max") == "max 100000"


@dataclass
class ToldGuardian:
    """Takes down what a guardian is told, with the quota at that moment."""

    host: FakeHost
    told: list[tuple[str, str]] = field(default_factory=list)

    def _take(self, word: str) -> None:
        self.told.append((word, self.host.text(POD, "cpu.max").split()[0]))

    def beat(self) -> None:
        self._take("beat")

    def ease(self) -> None:
        self._take("eased")

    def close(self) -> None:
        self._take("bye")


def test_at_first_and_after_a_pause_the_guardian_watches_before_anything_is_set(tmp_path: Path) -> None:
    host, made = control_loop(tmp_path, {})
    told = ToldGuardian(host)
    made.guardian = cast(Guardian, told)
    made.step(make_tick())
    made.enforcer._leases.end_all_actions("no tick was completed in time")
    made._is_eased = True
    made.step(make_tick())
    made.step(make_tick())
    at_first, after_the_pause = [("beat", "max"), ("beat", "50000")], [("beat", "max"), ("beat", "50000")]
    assert told.told == [*at_first, *after_the_pause, ("beat", "50000")]
    made.close()


def test_a_pause_is_told_to_the_guardian(tmp_path: Path) -> None:
    host, made = control_loop(tmp_path, {}, guardian_seconds=0.1)
    told = ToldGuardian(host)
    made.guardian = cast(Guardian, told)
    made.step(make_tick())
    made.watch_leases()
    wait_for(lambda: ("eased", "max") in told.told)
    assert made._is_eased
    made.close()


def test_while_ticks_have_stopped_a_birth_begins_no_action(tmp_path: Path) -> None:
    host, made = control_loop(tmp_path, {})
    made.step(make_tick())
    made.enforcer._leases.end_all_actions("no tick was completed in time")
    made._is_eased = True
    made.ask_now([want(Knob.CPU_WEIGHT, "7", target=POD, protocol_state=True)])
    assert host.text(POD, "cpu.weight") == "7"
    assert host.text(POD, "cpu.max") == "max 100000"
    made.close()


def test_a_stop_ends_what_an_earlier_run_left_before_pods_are_known(tmp_path: Path) -> None:
    host, first = control_loop(tmp_path, {})
    first.step(make_tick())
    first.close(handover_seconds=60.0)
    _, made = control_loop(tmp_path, {})
    made.pods_known = lambda: False
    host.file(POD, "cpu.max").write_text("50000 100000\n")
    made.step(make_tick())
    assert host.text(POD, "cpu.max") == "50000 100000"
    made.stop_reason_of = lambda: "the node is annotated"
    made.step(make_tick())
    assert host.text(POD, "cpu.max") == "max 100000"
    made.close()


def test_what_the_judge_saw_of_requests_is_metered(tmp_path: Path) -> None:
    _, made = control_loop(tmp_path, {})
    ids, usual = np.array([4], dtype=np.uint64), np.array([0.01])
    judged = Judgement(usual, usual * 0.1, usual, usual, np.zeros(1), np.array([1000]), usual, usual)
    for _ in range(20):
        made.step(make_tick(Turnarounds(ids, np.array([10.0]), np.array([0.2]), judged)))
    assert made.slowdown.slowdown(ids).ratio[0] == pytest.approx(1.0)
    made.close()


def test_the_response_finds_the_quota_of_a_throttled_victim_in_its_observation(tmp_path: Path) -> None:
    host, made = control_loop(tmp_path, {})
    host.file(POD, "cpu.max").write_text("50000 100000\n")
    seen: list[Observation] = []

    class Recording(ResponsePolicy):
        def step(self, observation: Observation) -> list[Intent]:
            seen.append(observation)
            return []

    made.response = Recording(ResponseSettings())
    throttled = {"cpu.wait_own_quota_ns": [0, 0, 0, 3 * 10**8]}
    frames = [make_frame(1.0, PATHS, {name: [0] * 4 for name in throttled}), make_frame(2.0, PATHS, throttled)]
    infos = tuple(replace(info, qos="LS") if info.path == POD else info for info in frames[0].cgroups)
    made.step(Tick.of(Window([replace(frame, cgroups=infos) for frame in frames])))
    assert seen[0].capabilities.cgroup_quota_us == {POD: 50_000}
    made.close()


class FullTripwire:
    """A tripwire whose map has no room."""

    def watch(self, victims: object, culprits: object) -> None:
        raise OSError(errno.E2BIG, "the map is full")

    def wait(self, seconds: float) -> list[Trip]:
        time.sleep(seconds)
        return []


def test_a_tripwire_that_fails_keeps_no_setting_in_effect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host, made = control_loop(tmp_path, {})
    made.fast_path = FastPath(cast(Tripwire, FullTripwire()), made.trip, ResponseSettings())
    try:
        made.step(make_tick())
        assert host.text(POD, "cpu.max") == "50000 100000"
        made.strategies = StrategyRunner({})
        made.step(make_tick())
        assert host.text(POD, "cpu.max") == "max 100000"
        assert made.fast_path.failures == 2
        assert sum("cannot watch" in record.message for record in caplog.records) == 1
    finally:
        made.close()


class Reconciling:
    """A source of protocol state that fails in some ticks."""

    silent = ("batch",)

    def __init__(self) -> None:
        self.failing = False

    def intents(self, tick: Tick) -> list[Intent]:
        if self.failing:
            raise RuntimeError("boom")
        return [want(Knob.CPU_WEIGHT, "7", POD, "hooks", protocol_state=True)]


def test_a_source_that_fails_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host, made = control_loop(tmp_path, {})
    source = Reconciling()
    made.sources.append(source)
    made.step(make_tick())
    source.failing = True
    made.step(make_tick())
    made.step(make_tick())
    assert host.text(POD, "cpu.weight") == "7"
    assert sum("Reconciling failed" in record.message for record in caplog.records) == 1
    made.close()
    assert host.text(POD, "cpu.weight") == "7"
    assert host.text(POD, "cpu.max") == "max 100000"


def test_actions_of_a_source_that_fails_end_with_their_lease(tmp_path: Path) -> None:
    host, made = control_loop(tmp_path, {})
    source = Reconciling()
    source.silent = ()  # type: ignore[assignment]
    quota = want(Knob.MEMORY_HIGH, "4096", POD, "hooks", lease_seconds=2.0)
    source.intents = lambda _: Reconciling.intents(source, _) and [quota]  # type: ignore[method-assign, assignment]
    made.sources.append(source)
    made.step(make_tick())
    assert host.text(POD, "memory.high") == "4096"
    source.failing = True
    made.step(make_tick())
    assert host.text(POD, "memory.high") == "4096"

    def ended() -> bool:
        made.step(make_tick())
        return host.text(POD, "memory.high") == "max"

    wait_for(ended)
    made.close()


def test_the_kubelets_managers_keep_their_files(tmp_path: Path) -> None:
    host, made = control_loop(tmp_path, {})
    made.kubelet_policy_of = lambda: KubeletPolicy(exclusive_pods=frozenset({UID}))
    pinned = Reconciling()
    pinned.intents = lambda _: [want(Knob.CPUSET_CPUS, "0", POD, "hooks", protocol_state=True)]  # type: ignore[method-assign]
    made.sources.append(pinned)
    made.step(make_tick())
    assert host.text(POD, "cpuset.cpus") == ""
    made.close()


class Evicting(Strategy[StrategySettings]):
    section = "extensions.evicting"
    settings_type = StrategySettings
    seen: ClassVar[list[tuple[dict[str, float], frozenset[str], frozenset[str]]]] = []

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        self.seen.append((dict(view.evictions), view.evictions_asked, view.evictions_refused))
        return [self.evict(POD, "memory is short")]


def test_strategies_are_told_what_became_of_evictions(tmp_path: Path) -> None:
    _, made = control_loop(tmp_path, {}, evict=True, strategy=Evicting())
    evictor = FakeEvictor(EvictionAnswer(Answer.BUDGET, "needs all"))
    pod = PodFacts("shop/batch", uid=UID, workload="Deployment/shop/batch", qos=QoSClass.BE)
    made.enforcer.evict_pods_by(evictor, lambda: PodTable([pod], generation=1))
    made.step(make_tick())
    made.step(make_tick())
    evictor.may_answer.release()
    wait_for(lambda: made.step(make_tick()) or Evicting.seen[-1][2])
    assert Evicting.seen[:2] == [({}, frozenset(), frozenset()), ({}, frozenset({POD}), frozenset())]
    assert Evicting.seen[-1] == ({}, frozenset(), frozenset({POD})), "what never began has no credit"
    made.close()


@pytest.mark.parametrize("is_dry", [False, True], ids=["carried-out", "dry-run"])
def test_evictions_count_for_their_owner_where_they_are_carried_out(tmp_path: Path, is_dry: bool) -> None:
    _, made = control_loop(tmp_path, {}, evict=True, dry_run=is_dry, strategy=Evicting())
    evictor = FakeEvictor(EvictionAnswer(Answer.ACCEPTED))
    evictor.may_answer.release()
    pod = PodFacts("shop/batch", uid=UID, workload="Deployment/shop/batch", qos=QoSClass.BE)
    made.enforcer.evict_pods_by(evictor, lambda: PodTable([pod], generation=1))
    wait_for(lambda: made.step(make_tick()) or any(key[2] == Outcome.EVICTED for key in made.enforcer.counts))
    assert sum(made.evictions.counts.values()) == (0 if is_dry else 1)
    made.close()


def test_nothing_is_begun_before_the_pods_are_known(tmp_path: Path) -> None:
    host, control = control_loop(tmp_path, {})
    known = False
    control.pods_known = lambda: known
    control.step(make_tick())
    assert host.text(POD, "cpu.max") == "max 100000"
    known = True
    control.step(make_tick())
    assert host.text(POD, "cpu.max") == "50000 100000"
    known = False  # a source that starts anew: what is in effect stays until its lease ends
    control.step(make_tick())
    assert host.text(POD, "cpu.max") == "50000 100000"
    control.close()


def test_what_the_enforcer_refuses_reaches_the_response(tmp_path: Path) -> None:
    told: list[Refusal] = []

    class Asking(ResponsePolicy):
        def step(self, observation: Observation) -> list[Intent]:
            return [want(Knob.CPU_IDLE, "1", POD, "response")]

        def note_refusals(self, refusals: Iterable[Refusal], now_seconds: float) -> None:
            told.extend(refusals)

    _host, made = control_loop(tmp_path, {ANNOTATION_PROTECTED: "true"})
    made.response = Asking()
    made.step(make_tick())
    assert told == [Refusal(POD, "cpu.idle", Refused.CULPRIT)]
    made.close()


def test_a_pair_that_trips_in_vain_is_looked_at_once_a_second(tmp_path: Path) -> None:
    _host, made = control_loop(tmp_path, {})
    made.step(make_tick())
    looked: list[str] = []

    class Ignoring(ResponsePolicy):
        def trip(
            self, observation: Observation, culprit: str, victim: str, *, resource: str, lost: float
        ) -> list[Intent]:
            looked.append(culprit)
            return []

    made.response = Ignoring()
    start = time.monotonic_ns()
    for number in range(100):
        made.trip(Trip(victim=3, culprit=4, lost_ns=10_000_000, span_ns=50_000_000, at_ns=start + number * 20_000_000))
    assert made.trips["ignored"] == 100
    assert looked == [POD, POD]
    made.close()


def test_a_trip_from_before_a_lift_is_no_evidence_and_mutes_nothing(tmp_path: Path) -> None:
    _host, made = control_loop(tmp_path, {})
    made.step(make_tick())
    asked: list[str] = []

    class Lifted(ResponsePolicy):
        def is_lifted(self, culprit: str) -> bool:
            return True

        def trip(
            self, observation: Observation, culprit: str, victim: str, *, resource: str, lost: float
        ) -> list[Intent]:
            asked.append(culprit)
            return []

    made.response = Lifted()
    now = time.monotonic_ns()
    for at_ns in (now + 1_000_000, now + 200_000_000):  # the first one's 50 ms began before the tick
        made.trip(Trip(victim=3, culprit=4, lost_ns=10_000_000, span_ns=50_000_000, at_ns=at_ns))
    assert made.trips == {"late": 1, "ignored": 1}
    assert asked == [POD]
    made.close()


def test_a_trip_amid_a_step_that_saw_what_was_before_its_lift_is_late(tmp_path: Path) -> None:
    _host, made = control_loop(tmp_path, {})
    made.step(make_tick())

    class Lifting(ResponsePolicy):
        before_ns = 0

        def step(self, observation: Observation) -> list[Intent]:
            self.before_ns = time.monotonic_ns()
            return []

        def is_lifted(self, culprit: str) -> bool:
            return True

        def trip(
            self, observation: Observation, culprit: str, victim: str, *, resource: str, lost: float
        ) -> list[Intent]:
            return []

    made.response = response = Lifting()
    enforce, told = made.enforcer.step, []

    def amid(*args: Any, **more: Any) -> Any:
        told.append(made._respond(Trip(victim=3, culprit=4, lost_ns=1, span_ns=1, at_ns=response.before_ns)))
        return enforce(*args, **more)

    made.enforcer.step = amid  # type: ignore[method-assign]
    made.step(make_tick())
    assert told == ["late"]
    made.close()


STORMED = [f"/kubepods/besteffort/storm-{number}" for number in range(40)]


class Storm(Strategy[StrategySettings]):
    section = "extensions.storm"
    settings_type = StrategySettings
    begun = False

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        return [self.set_knob(path, Knob.CPUSET_CPUS, "0-1", "because") for path in STORMED if self.begun]


class Answering(ResponsePolicy):
    """Makes the culprit of a trip idle."""

    def trip(self, observation: Observation, culprit: str, victim: str, *, resource: str, lost: float) -> list[Intent]:
        return [want(Knob.CPU_IDLE, "1", target=culprit, strategy="response", strength=Strength.INVISIBLE)]


def test_a_trip_amid_a_storm_of_changes_is_answered_between_two_of_them(tmp_path: Path) -> None:
    storm = Storm()
    host, made = control_loop(tmp_path, {}, strategy=storm)
    for path in STORMED:
        host.make(path)
    made.step(make_tick())
    made.response, storm.begun = Answering(), True
    writer = made.enforcer._decisions._applier._writer
    write, written = writer.write, []
    tripping: list[threading.Thread] = []

    def slow(attribute: Any, value: str, expected: Any, identity: str) -> None:
        write(attribute, value, expected, identity)
        written.append(attribute.path.rpartition("/")[2])
        if len(written) == 5:
            trip = Trip(victim=3, culprit=4, lost_ns=10_000_000, span_ns=50_000_000, at_ns=time.monotonic_ns())
            tripping.append(threading.Thread(target=made.trip, args=(trip,)))
            tripping[0].start()
            wait_for(lambda: made._trip_answers._waiting)

    writer.write = slow  # type: ignore[method-assign]
    made.step(make_tick())
    tripping[0].join(30)
    assert made.trips == {"acted": 1}
    assert written[5] == "cpu.idle"
    assert written.count("cpuset.cpus") == len(STORMED)
    made.close()
    assert host.text(POD, "cpu.idle") == "0"
