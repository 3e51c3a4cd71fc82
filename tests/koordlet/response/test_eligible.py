"""Who is acted upon, how strongly, and for which losses."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from api.cgroup_path import competing_ancestor
from api.intents import Evict, Intent, Knob, Setting, Strength
from api.qos import QoSClass
from api.verdicts import How
from koordlet.response.host_capabilities import HostCapabilities
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from tests.koordlet.response.ticks import CLASSES, HOG, POD_WEB, WEB, knobs, look, look_at_pods, verdict_on


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


def test_a_weight_acts_where_the_two_compete() -> None:
    assert competing_ancestor("/a/b/c", "/a/d") == "/a/b"
    assert competing_ancestor("/a/b", "/a/b/c") == ""
    assert competing_ancestor("/a", "/b") == "/a"
    wanted = ResponsePolicy().step(look(0.0, [verdict_on()]))
    assert knobs(wanted) == [("/batch", Knob.CPU_IDLE, "1")]


def test_no_weight_is_set_where_it_would_reach_a_cgroup_that_may_not_be_limited() -> None:
    wanted = ResponsePolicy().step(look(0.0, [verdict_on()], classes=CLASSES | {"/batch/prod": "LS"}))
    assert knobs(wanted) == [(HOG, Knob.CPUSET_CPUS, "1")]


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
