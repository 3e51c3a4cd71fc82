"""Rights of strategies, the blast radius of answers to verdicts, and the ways to stop everything."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from api.frame import CgroupInfo, CgroupKind
from api.intents import Evict, Knob, Reclaim, Setting, Strength
from api.qos import QoSClass, QoSSource
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.limits.blast_radius import BlastRadius
from koordlet.enforcer.limits.budgets import Budgets
from koordlet.enforcer.limits.rights import BEST_EFFORT, Rights, RightsOnFrame
from koordlet.enforcer.writer import DryRunWriter
from koordlet.response.observation import Observation
from tests.frames import cgroup_info
from tests.koordlet.enforcer.hosts import FakeHost, infos, outcomes, want

POD = "/kubepods/besteffort/pod12345678-1234-1234-1234-123456789012"


def frame(*given: CgroupInfo, believes: bool = True) -> RightsOnFrame:
    return RightsOnFrame.of(Rights(believes_kubernetes=believes), given)


def info(path: str, qos: str = "", owner: int = 0, source: QoSSource = QoSSource.SETTINGS) -> CgroupInfo:
    return replace(cgroup_info(1, path, qos=qos), owner_uid=owner, qos_source=source)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        pytest.param("/batch", "", id="classed-by-settings"),
        pytest.param("/batch/job", "", id="within"),
        pytest.param("/plain", "without a class", id="unclassed"),
        pytest.param("/docker", "class LS", id="directory-that-holds-a-service"),
        pytest.param("/docker/hog", "", id="beside-a-service"),
        pytest.param("/docker/web", "class LS", id="service"),
        pytest.param("/never-seen", "without a class", id="unknown"),
    ],
)
def test_only_what_is_best_effort_with_all_that_lives_in_it_is_limited(target: str, told: str) -> None:
    seen = frame(
        *(info(path, qos) for path, qos in (("/batch", "BE"), ("/batch/job", ""), ("/plain", ""))),
        *(info(path, qos) for path, qos in (("/docker", ""), ("/docker/hog", "BE"), ("/docker/web", "LS"))),
    )
    refusal = seen.refusal("response", target)
    assert told in refusal
    assert bool(told) == bool(refusal)


def test_without_a_source_of_pods_a_besteffort_pod_may_be_critical() -> None:
    cgroups = info("/kubepods/besteffort", "BE", source=QoSSource.KUBERNETES), info(POD, "BE", 0, QoSSource.KUBERNETES)
    assert frame(*cgroups).refusal("response", POD) == ""
    assert frame(*cgroups).refusal("cpu_suppress", "/kubepods/besteffort") == ""
    assert "without a class" in frame(*cgroups, believes=False).refusal("response", POD)
    assert "without a class" in frame(*cgroups, believes=False).refusal("cpu_suppress", "/kubepods/besteffort")
    named = frame(cgroups[0], replace(cgroups[1], qos_source=QoSSource.SETTINGS), believes=False)
    assert named.refusal("response", POD) == "", "a rule of the settings names it"


def test_a_pod_that_no_source_knows_yet_is_limited_with_its_directory_alone() -> None:
    directory = info("/kubepods/besteffort", "BE", source=QoSSource.KUBERNETES)
    unknown = replace(info(POD), kind=CgroupKind.PLAIN)
    assert frame(directory, unknown).refusal("cpu_suppress", directory.path) == ""
    assert "without a class" in frame(directory, unknown).refusal("cpu_suppress", POD)


def test_below_the_directory_of_another_user_that_directory_alone_is_acted_upon() -> None:
    seen = frame(info("/batch", "BE"), info("/batch/u", owner=1000), info("/batch/u/a", owner=0))
    assert "another user" in seen.refusal("response", "/batch/u/a")
    assert seen.refusal("response", "/batch/u") == ""
    assert seen.classes.boundary_of("/batch/u/a/b") == "/batch/u"


def test_an_enforcer_with_rights_refuses_and_tells_why(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    for path in ("/be", "/plain", "/ls"):
        host.make(path)
    enforcer = host.enforcer(evict=True)
    enforcer.rights = Rights()
    cgroups = infos(be=QoSClass.BE, plain=QoSClass.NONE, ls=QoSClass.LS)
    asked = [want(Knob.CPU_MAX, "20000", path) for path in ("/be", "/plain", "/ls")]
    events = enforcer.step([*asked, Evict(strategy="calm", target="/plain", reason="any")], cgroups, host.clock)
    told = {event.target + event.knob: event.outcome for event in events}
    assert told["/becpu.max"] == Outcome.SET
    assert {told[key] for key in told if key != "/becpu.max"} == {Outcome.PROTECTED}
    assert any("calm may limit only BE" in event.reason for event in events)
    wider = enforcer.step([asked[0], want(Knob.CPU_WEIGHT, "500", "/ls")], cgroups, host.later(1))
    assert ("cpu.weight", "set", "500") in outcomes(wider), "more may be given to anybody"
    reclassed = infos(be=QoSClass.LS, plain=QoSClass.NONE, ls=QoSClass.LS)
    enforcer.step([asked[0]], reclassed, host.later(1))
    assert host.text("/be", "cpu.max").startswith("max"), "what is no longer allowed goes back"
    enforcer.close(host.later(1))


def quotas(*targets: str, knob: Knob = Knob.CPU_MAX) -> list[Setting]:
    value = "1" if knob is Knob.FREEZE else "20000"
    return [want(knob, value, target, "response", strength=Strength.HARD) for target in targets]


def test_answers_limit_no_more_than_their_share_of_the_best_effort_pods() -> None:
    radius, many = BlastRadius(0.5, 1), quotas(*(f"/be{number}" for number in range(20)))
    assert len(radius.exceeding(many, (), 20, {})) == 10
    assert len(radius.exceeding(many, (), 3, {})) == 16, "four may always be"
    in_effect = [(one.target, one.knob) for one in many[10:]]
    refused = {one.target for one, _ in radius.exceeding(many, in_effect, 20, {})}
    assert refused == {one.target for one in many[:10]}, "what is in effect stays"
    gentle = [replace_strength(one, Strength.INVISIBLE) for one in many]
    assert radius.exceeding(gentle, (), 20, {}) == []


def replace_strength(setting: Setting, strength: Strength) -> Setting:
    return want(setting.knob, setting.value, setting.target, "response", strength=strength)


def test_answers_freeze_one_pod_at_a_time() -> None:
    frozen = quotas("/be1", "/be2", "/be3", knob=Knob.FREEZE)
    refused = BlastRadius(1.0, 1).exceeding(frozen, [("/be2", Knob.FREEZE)], 20, {})
    assert {one.target for one, _ in refused} == {"/be1", "/be3"}
    assert "max_frozen" in refused[0][1]


def test_the_radius_holds_in_the_enforcer_for_answers_alone(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    paths = [f"/be{number}" for number in range(8)]
    for path in paths:
        host.make(path)
    enforcer = host.enforcer(max_limited_ratio=0.0)
    cgroups = infos(**{path.strip("/"): QoSClass.BE for path in paths})
    events = enforcer.step(quotas(*paths), cgroups, host.clock)
    assert sum(event.outcome is Outcome.SET for event in events) == 4
    assert sum(event.outcome is Outcome.OVER_BUDGET for event in events) == 4
    others = [want(Knob.CPU_MAX, "20000", path, "cpu_suppress") for path in paths]
    events = enforcer.step(others, cgroups, host.later(1))
    assert all(host.text(path, "cpu.max").startswith("20000") for path in paths), "a strategy has limits of its own"
    enforcer.close(host.later(1))


def test_a_storm_of_changes_leaves_room_for_the_first_answer() -> None:
    budgets = Budgets(100, 1000)
    granted = [budgets.spend(f"/be{number}", 0.0) == "" for number in range(150)]
    assert sum(granted) == 80
    assert budgets.spend("/hog", 0.0, is_invisible=True) == ""


@pytest.mark.parametrize("by_file", [True, False], ids=["file", "node"])
def test_everything_stops_and_goes_on_again(tmp_path: Path, by_file: bool) -> None:
    host = FakeHost(tmp_path)
    host.make("/be")
    stop = tmp_path / "stop"
    enforcer = host.enforcer(stop_file=str(stop), evict=True)
    asked = [want(Knob.CPU_MAX, "20000", "/be"), want(Knob.MEMORY_MIN, "4096", "/be", protocol_state=True)]
    enforcer.step(asked, now=host.clock)
    assert host.text("/be", "cpu.max").startswith("20000")
    if by_file:
        stop.touch()
    why = "" if by_file else "the node says so"
    events = enforcer.step([*asked, Evict(strategy="calm", target="/be", reason="any")], now=host.later(1), stopped=why)
    assert host.text("/be", "cpu.max").startswith("max")
    assert host.text("/be", "memory.min") == "4096", "protocol state stays"
    refused = {event.knob for event in events if event.outcome is Outcome.REFUSED}
    assert refused == {"cpu.max", "evict"}
    stop.unlink(missing_ok=True)
    enforcer.step(asked, now=host.later(1))
    assert host.text("/be", "cpu.max").startswith("20000")
    enforcer.close(host.later(1))


def test_the_default_rights_are_best_effort() -> None:
    assert Rights().classes_of("anything") == BEST_EFFORT


def test_where_only_some_cgroups_may_be_changed_the_node_may_not(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/be")
    enforcer = host.enforcer(only=("/be",))
    asked = [want(Knob.SYSCTL, "5", "vm/min_free_kbytes"), want(Knob.CPU_MAX, "20000", "/be")]
    told = {event.knob: event.outcome for event in enforcer.step(asked, now=host.clock)}
    assert told == {"sysctl": Outcome.PROTECTED, "cpu.max": Outcome.SET}
    enforcer.close(host.later(1))


def test_reclaims_of_one_step_take_no_longer_together_than_one_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty pods whose whole cache is taken would keep trips waiting for ten seconds."""
    host, seconds = FakeHost(tmp_path), [0.0]
    paths = [f"/be{number}" for number in range(5)]
    for path in paths:
        host.make(path)

    class Slow(DryRunWriter):
        is_dry = False

        def reclaim(self, directory: Path, amount_bytes: int) -> int:
            seconds[0] += 0.15
            return amount_bytes

    monkeypatch.setattr("koordlet.enforcer.oneshot.time.monotonic", lambda: seconds[0])
    enforcer = host.enforcer(writer=Slow())
    asked = [Reclaim(strategy="calm", target=path, reason="any", amount_bytes=1 << 20) for path in paths]
    outcomes_of = [event.outcome for event in enforcer.step(asked, now=host.clock)]
    assert outcomes_of == [Outcome.RECLAIMED] * 2 + [Outcome.OVER_BUDGET] * 3
    assert enforcer.step(asked[4:], now=host.later(1))[0].outcome is Outcome.RECLAIMED
    enforcer.close(host.later(1))


def test_the_response_and_the_enforcer_go_by_one_rule() -> None:
    """What the response holds for best effort the enforcer does not refuse, and the other way round."""
    cgroups = (
        replace(info("/kubepods"), kind=CgroupKind.KUBEPODS),
        replace(info("/kubepods/besteffort"), kind=CgroupKind.KUBEPODS),
        info(POD, "BE", source=QoSSource.KUBERNETES),
        info("/kubepods/besteffort/podunknown"),
        info("/batch", "BE"),
        info("/batch/u", owner=1000),
        info("/batch/u/a", "LS"),
        info("/plain"),
    )
    nothing = np.zeros(len(cgroups))
    for believes in (True, False):
        seen = Observation(
            1.0, cgroups, (), {}, nothing, nothing, nothing, nothing, nothing, believes_kubernetes=believes
        )
        rights = frame(*cgroups, believes=believes)
        for one in cgroups:
            assert seen.classes_within(one.path) == rights.classes.within(one.path)
            assert seen.boundary_of(one.path) == rights.classes.boundary_of(one.path)
            is_refused = rights.refusal("response", one.path) != ""
            may = seen.classes_within(one.path) <= BEST_EFFORT and seen.boundary_of(one.path) == one.path
            assert may is not is_refused
