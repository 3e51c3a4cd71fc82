"""The response: who is acted upon, trial and release of rungs, and what is never done."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cgroup_path import competing_ancestor
from api.frame import CgroupInfo, CgroupKind
from api.intents import Evict, Intent, Knob, Reclaim, Setting, Strength
from api.qos import QoSClass
from api.verdicts import Culprit, How, Severity, Verdict
from detector.blame import Blame
from koordlet.response.host_capabilities import CacheCapabilities, CgroupReads, HostCapabilities
from koordlet.response.ladders import LADDERS, cgroup_reads, schemata
from koordlet.response.observation import Observation
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import StepKind
from tests.verdicts import make_verdict

WEB, HOG, BYSTANDER = "/online/web", "/batch/hog", "/batch/bystander"
CLASSES = {"/online": "", WEB: "LS", "/batch": "", HOG: "BE", BYSTANDER: "BE"}


def verdict_on(
    culprit: str = HOG, victim: str = WEB, *, resource: str = "cpu", share: float = 0.9, how: How = How.DIRECT
) -> Verdict:
    return make_verdict(
        victim,
        time=0.0,
        resource=resource,
        lost=0.5,
        severity=Severity.HIGH,
        culprits=(Culprit(culprit, share, how),),
        confidence=share,
        rule=resource,
    )


def look(
    now: float,
    verdicts: Sequence[Verdict] = (),
    *,
    lost: float = 0.5,
    used: float = 1.0,
    classes: dict[str, str] | None = None,
    capabilities: HostCapabilities | None = None,
    turnaround: float = float("nan"),
    throttled: float = 0.0,
) -> Observation:
    given_classes = classes or CLASSES
    infos = tuple(
        CgroupInfo(number, path, path.rpartition("/")[2], qos)
        for number, (path, qos) in enumerate(given_classes.items(), start=1)
    )
    victims = np.array([lost if info.path == WEB else 0.0 for info in infos])
    count = len(infos)
    return Observation(
        now_seconds=now,
        cgroups=infos,
        verdicts=tuple(verdicts),
        lost={"cpu": victims, "memory": victims, "blockio": victims, "cache": victims},
        throttled=np.array([throttled if info.path == WEB else 0.0 for info in infos]),
        cpu_cores=np.array([used if info.path.startswith("/batch") else 0.3 for info in infos]),
        memory_bytes=np.full(count, 1e9),
        io_bytes_per_second=np.full(count, used * 1e8),
        turnaround_seconds=np.full(count, turnaround),
        capabilities=capabilities or HostCapabilities(cpus=(0, 1), disks=("8:0",)),
    )


def knobs(intents: Sequence[Intent]) -> list[tuple[str, str, str]]:
    return [(intent.target, intent.knob, intent.value) for intent in intents if isinstance(intent, Setting)]


def run(response: ResponsePolicy, seconds: Sequence[Observation]) -> list[list[Intent]]:
    return [response.step(observation) for observation in seconds]


def live(
    response: ResponsePolicy, seconds: int, helps: frozenset[str] = frozenset(), *, start: int = 0, used: float = 1.0
) -> list[tuple[int, StepKind, str]]:
    """Steps of so many seconds in which the hog costs half a second a second unless a rung that helps is in effect."""
    steps = []
    for second in range(start, start + seconds):
        held = {name for names in response.active_rungs.values() for name in names}
        lost = 0.01 if held & helps else 0.5
        response.step(look(float(second), [verdict_on()] if lost > 0.1 else [], lost=lost, used=used))
        steps += [(second, step.kind, step.rung) for step in response.steps]
    return steps


def test_the_first_rung_is_invisible_and_kept_when_its_lift_shows_that_it_helps() -> None:
    response = ResponsePolicy()
    first = response.step(look(0.0, [verdict_on()]))
    assert knobs(first) == [("/batch", Knob.CPU_IDLE, "1")]
    assert [step.kind for step in response.steps] == [StepKind.APPLIED]
    steps = live(response, 120, frozenset({"idle"}), start=1)
    lifts = [second for second, kind, _rung in steps if kind is StepKind.LIFTED]
    assert 25 <= lifts[0] <= 43  # about the hold after the trial
    assert [(second - lifts[0], kind) for second, kind, _rung in steps[:2]] == [
        (0, StepKind.LIFTED),
        (1, StepKind.KEPT),
    ]
    assert lifts[1] - lifts[0] >= 45  # the hold has doubled
    assert {rung for _second, _kind, rung in steps} == {"idle"}


def test_a_rung_that_does_not_help_is_taken_back_and_the_next_is_tried() -> None:
    steps = live(ResponsePolicy(), 16)
    assert [(kind, rung) for _second, kind, rung in steps[:5]] == [
        (StepKind.APPLIED, "idle"),
        (StepKind.REVERTED, "idle"),  # by the ticks before it: no lift is needed
        (StepKind.APPLIED, "cpuset"),
        (StepKind.LIFTED, "cpuset"),
        (StepKind.REVERTED, "cpuset"),
    ]


def test_a_rung_after_which_the_turnaround_grows_is_taken_back() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on()], turnaround=0.010))
    for second in range(1, 5):
        response.step(look(float(second), [verdict_on()], lost=0.0, turnaround=0.020))
    assert (response.steps[0].kind, response.steps[0].rung) == (StepKind.REVERTED, "idle")


def test_a_culprit_that_goes_quiet_is_released_in_seconds_and_one_that_returns_is_held_longer() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on()]))
    second = 1
    while response.active_rungs:
        response.step(look(float(second), [], lost=0.0, used=0.0))
        second += 1
    assert second <= 6
    response.step(look(float(second), [verdict_on()]))
    start = second
    while response.active_rungs:
        second += 1
        response.step(look(float(second), [], lost=0.0, used=0.0))
    assert 6 <= second - start <= 10


def test_the_hold_grows_when_a_culprit_comes_back() -> None:
    response = ResponsePolicy(ResponseSettings(hold_seconds=10.0))

    def seconds_held(start: float) -> float:
        response.step(look(start, [verdict_on()]))
        now = start
        while not any(step.kind is StepKind.RELEASED for step in response.steps):
            now += 1.0
            response.step(look(now, [], lost=0.0))
        return now - start

    first = seconds_held(0.0)
    assert 7.5 + 4 <= first < 12.5 + 6  # from the end of its trial
    assert 15.0 + 4 <= seconds_held(100.0) < 25.0 + 6


def test_a_protected_culprit_is_left_alone_and_counted() -> None:
    for qos in ("LSR", "LSE", "SYSTEM", "LS"):
        response = ResponsePolicy()
        assert response.step(look(0.0, [verdict_on()], classes=CLASSES | {HOG: qos})) == []
        assert response.skipped == {"protected": 1}


def test_a_resource_without_a_ladder_is_left_alone_and_counted() -> None:
    response = ResponsePolicy(ResponseSettings(resources=("cpu", "tape")))
    assert response.step(look(0.0, [verdict_on(resource="tape")])) == []
    assert response.skipped == {"no_ladder": 1}


def test_a_protected_child_protects_its_parent_and_a_protected_parent_its_children() -> None:
    response = ResponsePolicy()
    assert response.step(look(0.0, [verdict_on()], classes=CLASSES | {f"{HOG}/inner": "LSR"})) == []
    assert response.step(look(1.0, [verdict_on()], classes=CLASSES | {"/batch": "LSE"})) == []


def test_of_two_that_hurt_each_other_only_the_lower_class_is_acted_upon() -> None:
    response = ResponsePolicy()
    wanted = response.step(look(0.0, [verdict_on(), verdict_on(WEB, HOG)]))
    assert {target for target, _knob, _value in knobs(wanted)} == {"/batch"}
    equal = ResponsePolicy()
    assert equal.step(look(0.0, [verdict_on(), verdict_on(WEB, HOG)], classes=CLASSES | {HOG: "LS"})) == []


def test_correlation_alone_goes_no_further_than_mild() -> None:
    response = ResponsePolicy()
    for second in range(60):
        for intent in response.step(look(float(second), [verdict_on(how=How.CORRELATED)])):
            assert intent.strength <= Strength.MILD


def test_nothing_beyond_the_strongest_allowed_is_ever_wanted() -> None:
    response = ResponsePolicy()
    seen = set()
    for second in range(120):
        for intent in response.step(look(float(second), [verdict_on()])):
            seen.add(intent.strength)
    assert seen == {Strength.INVISIBLE, Strength.MILD, Strength.HARD}


@pytest.mark.parametrize(("victims", "evictions"), [(1, 0), (2, 1)])
def test_freezing_and_eviction_need_two_victims(victims: int, evictions: int) -> None:
    classes = CLASSES | {"/online/shop": "LS"}
    response = ResponsePolicy(ResponseSettings(max_strength=Strength.DRASTIC))
    wanted: list[Intent] = []
    for second in range(160):
        seen = look(
            float(second), [verdict_on(), verdict_on(victim="/online/shop")][:victims], lost=0.5, classes=classes
        )
        losses = np.array([0.5 if info.path.startswith("/online/") else 0.0 for info in seen.cgroups])
        wanted += response.step(replace(seen, lost={"cpu": losses}))
    drastic = [intent for intent in wanted if intent.strength is Strength.DRASTIC]
    assert sum(isinstance(intent, Evict) for intent in drastic) == evictions
    assert bool(drastic) == bool(evictions)


def test_a_culprit_whose_cgroup_died_is_dropped_and_one_never_seen_is_not_acted_upon() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on()]))
    alone = {path: qos for path, qos in CLASSES.items() if path != HOG}
    assert response.step(look(1.0, [verdict_on()], classes=alone)) == []
    assert response.skipped["gone"] == 1
    assert ResponsePolicy().step(look(0.0, [verdict_on("[kernel]")])) == []


def test_the_agent_never_acts_on_its_own_cgroup() -> None:
    response = ResponsePolicy()
    assert response.step(look(0.0, [verdict_on()], capabilities=HostCapabilities(own=f"{HOG}/agent"))) == []
    assert response.skipped == {"own_cgroup": 1}


def test_missing_knobs_are_passed_over() -> None:
    response = ResponsePolicy()
    wanted = response.step(
        look(0.0, [verdict_on()], capabilities=HostCapabilities(frozenset({Knob.CPU_MAX}), cpus=(0, 1)))
    )
    assert knobs(wanted) == [(HOG, Knob.CPU_MAX, "50000 100000")]


def test_without_idle_cgroups_the_weight_is_lowered() -> None:
    capabilities = HostCapabilities(frozenset(Knob) - {Knob.CPU_IDLE}, cpus=(0, 1))
    assert knobs(ResponsePolicy().step(look(0.0, [verdict_on()], capabilities=capabilities))) == [
        ("/batch", Knob.CPU_WEIGHT, "1")
    ]


def test_memory_is_reclaimed_once_then_capped() -> None:
    response = ResponsePolicy()
    wanted: list[Intent] = []
    for second in range(8):
        wanted += response.step(look(float(second), [verdict_on(resource="memory")]))
    assert [type(intent) for intent in wanted[:2]] == [Reclaim, Setting]
    assert sum(isinstance(intent, Reclaim) for intent in wanted) == 1
    assert wanted[-1].knob is Knob.MEMORY_HIGH  # type: ignore[union-attr]


def test_flapping_verdicts_do_not_flap_the_rung() -> None:
    response = ResponsePolicy()
    applied = 0
    for second in range(60):
        lost = 0.01 if response.active_rungs else 0.5
        response.step(look(float(second), [verdict_on()] if second % 7 < 2 else [], lost=lost, used=1.0))
        applied += sum(step.kind is StepKind.APPLIED for step in response.steps)
    assert applied == 1


def test_a_trip_pulls_the_first_rung_and_it_is_taken_back_unless_it_helps() -> None:
    """Neither the peak that tripped nor a mean below it is evidence: the loss is the same without the rung."""
    response = ResponsePolicy()
    assert knobs(response.trip(look(0.0), HOG, WEB, resource="cpu", lost=0.8)) == [("/batch", Knob.CPU_IDLE, "1")]
    steps: list[StepKind] = []
    for second in range(1, 9):
        response.step(look(float(second), [], lost=0.3))
        steps += [step.kind for step in response.steps]
    assert steps == [StepKind.LIFTED, StepKind.REVERTED]
    assert not response.active_rungs


def test_a_trip_proves_nothing_where_nothing_is_lost_without_the_rung() -> None:
    response = ResponsePolicy()
    response.trip(look(0.0, lost=0.01), HOG, WEB, resource="cpu", lost=0.8)
    steps: list[StepKind] = []
    for second in range(1, 60):
        response.step(look(float(second), [], lost=0.01))
        steps += [step.kind for step in response.steps]
    assert steps == [StepKind.LIFTED, StepKind.RELEASED]


def test_one_that_was_tripped_before_its_first_tick_is_released_when_it_goes_quiet() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, lost=0.0, used=0.0))
    response.trip(look(0.0, lost=0.0, used=0.0), HOG, WEB, resource="cpu", lost=0.4)
    for second in range(1, 10):
        response.step(look(second, [verdict_on()], lost=0.4 if second < 2 else 0.0))
    assert response.active_rungs
    for second in range(10, 15):
        response.step(look(second, lost=0.0, used=0.0))
    assert not response.active_rungs


def test_a_tripped_rung_that_helps_is_kept_though_no_verdict_ever_opened() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, lost=0.4))
    response.trip(look(0.0, lost=0.4), HOG, WEB, resource="cpu", lost=0.4)
    kinds = []
    for second in range(1, 60):
        wanted = response.step(look(second, lost=0.0 if response.active_rungs else 0.4))
        kinds += [step.kind for step in response.steps]
    assert knobs(wanted) == [("/batch", "cpu.idle", "1")]
    assert kinds == [StepKind.LIFTED, StepKind.KEPT]


def test_a_trip_in_a_lift_ends_it_but_not_where_the_pair_tripped_before() -> None:
    for trips_before in (False, True):
        response = ResponsePolicy()
        response.trip(look(0.0, lost=0.0), HOG, WEB, resource="cpu", lost=0.4)
        second = 1
        while not any(step.kind is StepKind.LIFTED for step in response.steps):
            response.step(look(float(second), lost=0.0))
            if trips_before and second == 10:
                assert response.trip(look(float(second), lost=0.0), HOG, WEB, resource="cpu", lost=0.4) == []
            second += 1
        wanted = response.trip(look(float(second), lost=0.0), HOG, WEB, resource="cpu", lost=0.4)
        assert (knobs(wanted) == [("/batch", "cpu.idle", "1")]) is not trips_before


def test_for_a_victim_of_no_class_nothing_is_done_that_anybody_feels() -> None:
    response = ResponsePolicy(ResponseSettings(max_strength=Strength.DRASTIC))
    classes = {"/": "", WEB: "", HOG: "BE"}
    wanted = [
        intent
        for second in range(60)
        for intent in response.step(look(second, [verdict_on()], lost=0.5, classes=classes))
    ]
    assert wanted
    assert {intent.strength for intent in wanted} == {Strength.INVISIBLE}


def test_what_others_cost_the_victim_is_no_reason_to_climb_on() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on(share=0.9)], lost=0.5))
    for second in range(1, 20):  # 0.3 s/s are still lost, but hardly to this culprit
        still = msgspec.structs.replace(verdict_on(share=0.1), lost_seconds_per_second=0.1)
        seen = look(second, [still], lost=0.3)
        wanted = response.step(blaming(seen, {HOG: 0.01, BYSTANDER: 0.29}))
    assert [knob for _path, knob, _value in knobs(wanted)] == ["cpu.idle"]


def test_a_weight_acts_where_the_two_compete() -> None:
    assert competing_ancestor("/a/b/c", "/a/d") == "/a/b"
    assert competing_ancestor("/a/b", "/a/b/c") == ""
    assert competing_ancestor("/a", "/b") == "/a"
    wanted = ResponsePolicy().step(look(0.0, [verdict_on()]))
    assert knobs(wanted) == [("/batch", Knob.CPU_IDLE, "1")]


def test_no_weight_is_set_where_it_would_reach_a_cgroup_that_may_not_be_limited() -> None:
    wanted = ResponsePolicy().step(look(0.0, [verdict_on()], classes=CLASSES | {"/batch/prod": "LS"}))
    assert knobs(wanted) == [(HOG, Knob.CPUSET_CPUS, "1")]


PODS = {
    "/kubepods": "",
    "/kubepods/besteffort": "BE",
    "/kubepods/besteffort/pod-hog": "BE",
    "/kubepods/besteffort/pod-hog/c": "BE",
    "/kubepods/burstable": "LS",
    "/kubepods/burstable/pod-hog": "BE",
    "/kubepods/burstable/pod-hog/c": "BE",
    "/kubepods/burstable/pod-web": "LS",
    "/kubepods/burstable/pod-web/c": "LS",
    "/kubepods/burstable/pod-web/sidecar": "BE",
    "/kubepods/burstable/pod-other/c": "LS",
    "/user.slice": "",
}
POD_WEB = "/kubepods/burstable/pod-web/c"


def look_at_pods(verdict: Verdict, *, slowdown: float = float("nan"), lost: float = 0.5) -> Observation:
    def info(number: int, path: str, qos: str) -> CgroupInfo:
        depth = len(path.split("/"))
        kind = CgroupKind.KUBEPODS if path.startswith("/kubepods") and depth < 4 and "pod-" not in path else ""
        uid = path.split("/")[3] if "pod-" in path else ""
        return CgroupInfo(number, path, path.rpartition("/")[2], qos, kind=CgroupKind(kind), pod_uid=uid)

    seen = look(0.0, [verdict], classes=PODS)
    infos = tuple(info(number, path, qos) for number, (path, qos) in enumerate(PODS.items(), start=1))
    losses = np.array([lost if each.path == verdict.victim else 0.0 for each in infos])
    slower = np.array([slowdown if each.path == verdict.victim else np.nan for each in infos])
    return replace(seen, cgroups=infos, lost={"cpu": losses, "net": losses}, slowdown=slower)


def test_weight_reaches_a_sibling_pod_and_never_the_kubelets_own_directories() -> None:
    sibling = look_at_pods(verdict_on("/kubepods/burstable/pod-hog/c", POD_WEB))
    assert knobs(ResponsePolicy().step(sibling)) == [("/kubepods/burstable/pod-hog", Knob.CPU_IDLE, "1")]
    # In another QoS directory a weight below it moves no time to the victim: the first rung is one that does.
    elsewhere = look_at_pods(verdict_on("/kubepods/besteffort/pod-hog/c", POD_WEB))
    assert knobs(ResponsePolicy().step(elsewhere)) == [("/kubepods/besteffort/pod-hog/c", Knob.CPUSET_CPUS, "1")]


@pytest.mark.parametrize(
    ("culprit", "victim", "reason"),
    [
        pytest.param("/kubepods/burstable/pod-other/c", POD_WEB, "protected", id="of-the-same-class"),
        pytest.param("/user.slice", POD_WEB, "not_limited", id="unclassed"),
        pytest.param("/kubepods/burstable/pod-web/sidecar", POD_WEB, "same_pod", id="sidecar"),
        pytest.param("/kubepods/besteffort/pod-hog/c", "/", "root", id="for-the-root"),
    ],
)
def test_only_best_effort_pods_are_limited_and_only_for_others(culprit: str, victim: str, reason: str) -> None:
    response = ResponsePolicy(ResponseSettings(max_strength=Strength.DRASTIC))
    observation = look_at_pods(verdict_on(culprit, victim))
    for _ in range(30):
        assert response.step(observation) == []
        assert response.trip(observation, culprit, victim, resource="cpu", lost=0.9) == []
    assert set(response.skipped) == {reason}


def test_classes_that_the_settings_name_may_be_limited_too() -> None:
    response = ResponsePolicy(ResponseSettings(limited_classes=(QoSClass.BE, QoSClass.NONE)))
    wanted = response.step(look_at_pods(verdict_on("/user.slice", POD_WEB)))
    assert knobs(wanted) == [("/user.slice", Knob.CPU_IDLE, "1")]


def test_a_cgroup_without_a_class_has_that_of_its_nearest_ancestor() -> None:
    classes = {WEB: "LS", f"{WEB}/worker": "", "/batch": "BE", "/batch/job": "", "/other": ""}
    seen = look(0.0, classes=classes)
    assert [seen.qos_of(path).value for path in classes] == ["LS", "LS", "BE", "BE", ""]
    assert seen.qos_of("/batch/job/not/seen") is QoSClass.BE
    assert seen.classes_within("/batch") == {QoSClass.BE}
    assert seen.rank(f"{WEB}/worker") == seen.rank(WEB) > seen.rank("/other") > seen.rank("/batch/job")


def test_a_pod_that_is_not_known_yet_has_no_class_of_its_directory() -> None:
    pod = "/kubepods/besteffort/pod-hog"
    known = look_at_pods(verdict_on(f"{pod}/c", POD_WEB))
    unknown = replace(
        known, cgroups=tuple(replace(info, qos="") if info.path.startswith(pod) else info for info in known.cgroups)
    )
    response = ResponsePolicy()
    assert response.step(unknown) == []
    assert response.skipped == {"not_limited": 1}
    assert unknown.qos_of("/kubepods/besteffort") is QoSClass.BE


def test_a_loss_that_requests_do_not_feel_starts_no_action() -> None:
    sibling = verdict_on("/kubepods/burstable/pod-hog/c", POD_WEB)
    response = ResponsePolicy(ResponseSettings(max_strength=Strength.DRASTIC))
    for _ in range(30):
        assert response.step(look_at_pods(sibling, slowdown=0.0)) == []
    assert response.skipped == {"not_felt": 30}
    unfelt = look_at_pods(sibling, slowdown=0.0)
    assert response.trip(unfelt, "/kubepods/burstable/pod-hog/c", POD_WEB, resource="cpu", lost=0.9) == []
    for _ in range(3):
        wanted = response.step(look_at_pods(sibling, slowdown=0.5))
    assert knobs(wanted) == [("/kubepods/burstable/pod-hog", Knob.CPU_IDLE, "1")]


def test_without_requests_a_loss_is_felt_beyond_the_budget() -> None:
    culprit = "/kubepods/burstable/pod-hog/c"
    little = msgspec.structs.replace(verdict_on(culprit, POD_WEB), lost_seconds_per_second=0.02)
    response = ResponsePolicy()
    for _ in range(10):
        assert response.step(look_at_pods(little, lost=0.02)) == []
    assert response.step(look_at_pods(verdict_on(culprit, POD_WEB))) != []


def test_turnaround_says_nothing_of_the_network_that_answers_leave_by() -> None:
    verdict = verdict_on("/kubepods/besteffort/pod-hog/c", POD_WEB, resource="network")
    (wanted,) = ResponsePolicy().step(look_at_pods(verdict, slowdown=0.0))
    assert isinstance(wanted, Setting)
    assert wanted.knob == Knob.NET_CLASS


def test_a_victim_held_by_its_own_quota_may_catch_up_before_the_culprit_is_moved() -> None:
    capabilities = HostCapabilities(cpus=(0, 1), cgroup_quota_us={WEB: 50_000})
    response = ResponsePolicy()
    burst = (WEB, "cpu.max.burst", "50000")
    steps, wanted = [], []
    for second in range(24):
        held = {name for names in response.active_rungs.values() for name in names}
        lost, throttled = (0.2 if "idle" in held else 0.5), (0.05 if "burst" in held else 0.3)  # idle is not enough
        seen = look(second, [verdict_on()], lost=lost, throttled=throttled, capabilities=capabilities)
        wanted = knobs(response.step(seen))
        steps += [(step.rung, step.kind) for step in response.steps]
        assert (burst in wanted) is (("burst", StepKind.APPLIED) in steps)
    assert steps[:5] == [
        ("idle", StepKind.APPLIED),
        ("idle", StepKind.LIFTED),
        ("idle", StepKind.KEPT),
        ("burst", StepKind.APPLIED),
        ("burst", StepKind.KEPT),  # what its quota costs it falls, and that is what the rung was to do
    ]


def test_a_burst_that_changes_nothing_is_taken_back() -> None:
    capabilities = HostCapabilities(cpus=(0, 1), cgroup_quota_us={WEB: 50_000})
    response = ResponsePolicy()
    for second in range(12):
        wanted = response.step(
            look(second, [verdict_on()], lost=0.5 if second < 1 else 0.2, throttled=0.3, capabilities=capabilities)
        )
    assert not {knob for _path, knob, _value in knobs(wanted)} & {"cpu.max.burst"}


def test_a_victim_without_quota_or_without_a_loss_to_it_gets_no_burst() -> None:
    for throttled, quota in ((0.0, 50_000), (0.3, None)):
        capabilities = HostCapabilities(cpus=(0, 1), cgroup_quota_us={WEB: quota})
        response = ResponsePolicy()
        wanted = {
            knob
            for second in range(12)
            for _path, knob, _value in knobs(
                response.step(
                    look(
                        second,
                        [verdict_on()],
                        lost=0.5 if second < 1 else 0.2,
                        throttled=throttled,
                        capabilities=capabilities,
                    )
                )
            )
        }
        assert "cpu.max.burst" not in wanted
        assert "cpu.idle" in wanted


def test_a_trip_finds_the_quota_of_a_throttled_victim_read_in_the_last_tick() -> None:
    burst_alone = HostCapabilities(frozenset({Knob.CPU_BURST}), cpus=(0, 1))
    last = look(0.0, throttled=0.3, capabilities=burst_alone)
    read = dict.fromkeys(cgroup_reads(last, ResponseSettings()).quota, 50_000)
    assert read == {WEB: 50_000}
    response = ResponsePolicy()
    assert response.trip(last, HOG, WEB, resource="cpu", lost=0.4) == []
    known = replace(last, capabilities=replace(burst_alone, cgroup_quota_us=read))
    assert knobs(response.trip(known, HOG, WEB, resource="cpu", lost=0.4)) == [(WEB, Knob.CPU_BURST, "50000")]


@pytest.mark.parametrize(
    ("verdicts", "throttled", "fast_path", "expected"),
    [
        pytest.param([], 0.0, True, CgroupReads(), id="calm"),
        pytest.param([verdict_on()], 0.0, True, CgroupReads(frozenset({WEB, HOG})), id="cpu-verdict"),
        pytest.param([verdict_on()], 0.3, False, CgroupReads(frozenset({WEB, HOG}), frozenset({WEB})), id="throttled"),
        pytest.param([], 0.3, True, CgroupReads(quota=frozenset({WEB})), id="throttled-before-a-trip"),
        pytest.param([], 0.3, False, CgroupReads(), id="throttled-without-fast-path"),
        pytest.param([verdict_on(resource="memory")], 0.0, True, CgroupReads(), id="memory-verdict"),
        pytest.param([verdict_on("[kernel]")], 0.0, True, CgroupReads(), id="no-cgroup"),
    ],
)
def test_only_the_cgroups_that_a_rung_may_need_are_read(
    verdicts: list[Verdict], throttled: float, fast_path: bool, expected: CgroupReads
) -> None:
    tick = look(0.0, verdicts, throttled=throttled)
    assert cgroup_reads(tick, ResponseSettings(fast_path=fast_path)) == expected


def test_cpus_are_read_only_for_a_rung_that_may_follow() -> None:
    tick = look(0.0, [verdict_on()])
    assert cgroup_reads(tick, ResponseSettings(max_strength=Strength.INVISIBLE)) == CgroupReads()
    assert cgroup_reads(tick, ResponseSettings(min_culprit_share=1.0)) == CgroupReads()
    no_cpuset = replace(tick.capabilities, knobs=tick.capabilities.knobs - {Knob.CPUSET_CPUS})
    assert cgroup_reads(replace(tick, capabilities=no_cpuset), ResponseSettings()) == CgroupReads()


def test_cpus_are_parted_by_whole_cores() -> None:
    cores = {0: 0, 1: 1, 2: 0, 3: 1}
    capabilities = HostCapabilities(
        frozenset({Knob.CPUSET_CPUS}),
        cpus=(0, 1, 2, 3),
        cores=cores,
        cgroup_cpus={WEB: frozenset({0}), HOG: frozenset()},
    )
    assert knobs(ResponsePolicy().step(look(0.0, [verdict_on()], capabilities=capabilities))) == [
        (HOG, Knob.CPUSET_CPUS, "1,3")
    ]
    free = HostCapabilities(frozenset({Knob.CPUSET_CPUS}), cpus=(0, 1, 2, 3), cores=cores)
    assert knobs(ResponsePolicy().step(look(0.0, [verdict_on()], capabilities=free))) == [
        (HOG, Knob.CPUSET_CPUS, "1,3")
    ]


@given(
    mask=st.integers(1, 20).map(lambda bits: (1 << bits) - 1),
    least=st.integers(1, 2),
    percent=st.sampled_from([10, 20, 50]),
)
def test_cache_masks_are_contiguous_and_never_empty(mask: int, least: int, percent: int) -> None:
    text = schemata(CacheCapabilities((0, 1), mask, least, (0,), 10, 10), percent)
    given_mask = int(text.splitlines()[0].partition("0=")[2].partition(";")[0], 16)
    assert given_mask & (given_mask + (given_mask & -given_mask)) == 0
    assert given_mask.bit_count() >= min(least, 1)
    assert "MB:0=" in text


@given(st.lists(st.tuples(st.floats(0, 2), st.booleans(), st.floats(0, 2)), min_size=1, max_size=80))
def test_whatever_happens_only_the_culprit_or_its_branch_is_touched_and_limits_have_floors(
    ticks: list[tuple[float, bool, float]],
) -> None:
    response = ResponsePolicy()
    for second, (lost, named, used) in enumerate(ticks):
        for intent in response.step(look(float(second), [verdict_on()] if named else [], lost=lost, used=used)):
            assert intent.target in {"/batch", HOG}
            if isinstance(intent, Setting) and intent.knob is Knob.CPU_MAX:
                assert int(intent.value.split()[0]) >= 20_000
            if isinstance(intent, Setting) and intent.knob is Knob.IO_MAX:
                assert "=0" not in intent.value


def test_every_ladder_goes_from_gentle_to_drastic() -> None:
    for rungs in LADDERS.values():
        strengths = [rung.strength for rung in rungs]
        assert strengths == sorted(strengths)


def blaming(seen: Observation, amounts: dict[str, float], victim: str = WEB) -> Observation:
    """The tick with these seconds per second charged to each culprit of a victim."""
    ids = {info.path: info.id for info in seen.cgroups}
    rows = sorted((ids[path], amount) for path, amount in amounts.items())
    culprits = np.array([row for row, _amount in rows], dtype=np.uint64)
    victims = np.full(len(rows), ids[victim], dtype=np.uint64)
    blame = Blame(victims, culprits, np.array([amount for _row, amount in rows]))
    return replace(seen, blame_of={"cpu": blame}.get)


def test_a_rung_is_judged_by_what_its_own_culprit_costs() -> None:
    """The hog has a fifth of the loss, and idle takes all of it: the rest is another's, and proves nothing."""
    response = ResponsePolicy()
    response.step(blaming(look(0.0, [verdict_on(share=0.2)], lost=0.5), {HOG: 0.1, BYSTANDER: 0.4}))
    steps = []
    for second in range(1, 8):
        response.step(blaming(look(float(second), [verdict_on(share=0.2)], lost=0.4), {HOG: 0.0, BYSTANDER: 0.4}))
        steps += [(step.kind, step.rung, step.after) for step in response.steps]
    assert steps == []  # the loss to this culprit is within its budget: held until its lift
    assert response.active_rungs == {(HOG, "cpu"): ("idle",)}


def test_a_rung_is_not_kept_for_what_another_culprit_stopped() -> None:
    response = ResponsePolicy()
    response.step(blaming(look(0.0, [verdict_on(share=0.5)]), {HOG: 0.3, BYSTANDER: 0.3}))
    kinds = []
    for second in range(1, 5):
        response.step(blaming(look(float(second), [verdict_on()], lost=0.3), {HOG: 0.3}))
        kinds += [step.kind for step in response.steps]
    assert kinds[0] is StepKind.REVERTED


def test_a_rung_is_judged_by_the_victim_it_was_applied_for() -> None:
    """The first victim is cured; a second one that loses more must not undo that."""
    other = "/online/shop"
    classes = CLASSES | {other: "LS"}
    ids = {path: number for number, path in enumerate(classes, start=1)}

    def tick(second: int, first: float, second_victim: float) -> Observation:
        verdicts = [verdict_on()] if second == 0 else [verdict_on(victim=other)]
        seen = look(float(second), verdicts, classes=classes)
        rows = [(ids[WEB], first), (ids[other], second_victim)]
        victims = np.array([row for row, _amount in rows], dtype=np.uint64)
        amounts = np.array([amount for _row, amount in rows])
        order = np.argsort(victims)
        culprits = np.full(2, ids[HOG], dtype=np.uint64)
        return replace(seen, blame_of={"cpu": Blame(victims[order], culprits, amounts[order])}.get)

    response = ResponsePolicy()
    steps = []
    for second in range(5):
        response.step(tick(second, 0.6 if second == 0 else 0.0, 0.7))
        steps += [(step.kind, step.rung, step.after) for step in response.steps]
    assert {kind for kind, _rung, _after in steps} == {StepKind.APPLIED}
    assert response.active_rungs == {(HOG, "cpu"): ("idle",)}


def test_what_lives_in_the_culprit_counts_as_the_culprit() -> None:
    classes = CLASSES | {f"{HOG}/worker": ""}
    seen = blaming(look(0.0, classes=classes), {HOG: 0.1, f"{HOG}/worker": 0.2, BYSTANDER: 0.4})
    assert seen.lost_to(WEB, HOG, "cpu") == pytest.approx(0.3)
    assert seen.lost_to(WEB, HOG, "memory") == 0.5
    assert seen.lost_to("/not/there", HOG, "cpu") == 0.0
