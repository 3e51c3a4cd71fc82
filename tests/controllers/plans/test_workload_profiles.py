"""Profiles from reports: made, published anew when they change, deleted when old; those of others are left alone."""

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from api.crds import DeliveredModels, WorkloadProfile
from api.kube.workload import Workload
from cluster import DeltaType, Key, StoreDelta, merge_patch
from cluster.twin import Twin
from controllers.kinds import NODE, NODE_METRIC, POD, WORKLOAD_PROFILE
from controllers.plans.workload_profiles import WorkloadProfiles
from controllers.runtime.view import ClusterCopy
from controllers.runtime.writes import Verb, kind_name
from scheduler.interference.profile import Profiles
from tests.capacity import NOW, a_node, a_report, to_load
from tests.controllers.profiles.fleet import CORES, at, name_of, pods_of, usual
from tests.controllers.recommend.cluster import changed, container, pod
from tests.managed import added, built, copy_of, running
from tests.waiting import wait_for

WEB, BATCH = 0, 1


def observing(turns: int = 10, lost: float = 0.1) -> ClusterCopy:
    """A cluster whose nodes report that WEB loses to BATCH."""
    controller = built(WorkloadProfiles, enabled=True)
    copy = copy_of(controller, {NODE: [a_node(f"n{node}", CORES) for node in range(3)]})
    copy.view("it", full=True)
    draw = np.random.default_rng(1)
    for turn in range(turns):
        copy.apply(NODE_METRIC, added([a_report_of(node, turn, lost, draw) for node in range(3)]))
    return copy


def a_report_of(node: int, turn: int, lost: float, draw: np.random.Generator):  # type: ignore[no-untyped-def]
    cores = {WEB: 2.0, BATCH: float(draw.uniform(2, 6))}
    verdict = {
        "resource": "cpu",
        "culprits": [name_of(BATCH)],
        "shares": [1.0],
        "lostSecondsPerSecond": lost * cores[BATCH] / 4,
    }
    stated = {"usualValues": [usual(WEB, 0.02, draw)]}
    return a_report(f"n{node}", pods=pods_of(cores, {WEB: [verdict]}), updated=at(turn), extensions=stated)


def removed(profiles: list[WorkloadProfile]) -> list[StoreDelta[WorkloadProfile]]:
    keys = [Key(each.metadata.namespace, each.metadata.name) for each in profiles]
    return [StoreDelta(DeltaType.DELETED, key, each, None) for key, each in zip(keys, profiles, strict=True)]


def planned(copy: ClusterCopy, now: float):  # type: ignore[no-untyped-def]
    return built(WorkloadProfiles, enabled=True).plan(copy.view("it", full=True), now).writes


def stored(copy: ClusterCopy, now: float) -> list[WorkloadProfile]:
    """Carry out the creations and statuses of a plan."""
    found = {}
    for write in planned(copy, now):
        if write.verb is Verb.CREATE:
            found[write.key] = dict(write.body)
        elif write.subresource == "status":
            found[write.key]["status"] = write.body["status"]
    made = [msgspec.convert(each, WorkloadProfile) for each in found.values()]
    copy.apply(WORKLOAD_PROFILE, added(made))
    return made


def test_profiles_that_the_scheduler_reads() -> None:
    copy = observing()
    made = stored(copy, NOW + 600)
    assert {each.spec.workload.name for each in made} == {"w0", "w1"}
    profiles = Profiles(minimum_samples=0)
    for each in made:
        profiles.put(each)
    web, batch = (profiles.traits(Workload("d", "Deployment", name), "") for name in ("w0", "w1"))
    assert web.sensitivity[0] * batch.aggressiveness[0] / 1e12 == pytest.approx(0.1, rel=0.1), "predicts what was lost"
    assert batch.sensitivity[0] == 0
    assert all(len(msgspec.json.encode(each)) < 4096 for each in made)


def test_nothing_is_written_again_until_it_changed_and_an_hour_passed() -> None:
    copy = observing()
    stored(copy, NOW + 600)
    assert planned(copy, NOW + 600) == []
    draw = np.random.default_rng(2)
    for turn in range(10, 40):
        copy.apply(NODE_METRIC, added([a_report_of(node, turn, 0.4, draw) for node in range(3)]))
    assert planned(copy, NOW + 2400) == [], "within the hour"
    writes = planned(copy, NOW + 600 + 3600)
    assert {write.verb for write in writes} == {Verb.PATCH}
    assert all(write.subresource == "status" for write in writes)


def test_what_nobody_reports_of_is_deleted_after_two_weeks_but_not_what_others_made() -> None:
    copy = observing()
    made = stored(copy, NOW + 600)
    foreign = msgspec.structs.replace(
        made[0], metadata=msgspec.structs.replace(made[0].metadata, name="by-hand", labels={})
    )
    empty = copy_of(built(WorkloadProfiles, enabled=True), {WORKLOAD_PROFILE: [*made, foreign]})
    writes = planned(empty, NOW + 15 * 86_400)
    assert {write.key.name for write in writes if write.verb is Verb.DELETE} == {each.metadata.name for each in made}
    assert not [write for write in writes if write.key.name == "by-hand"]


def test_a_workload_that_runs_on_keeps_its_profile_and_one_that_is_gone_does_not_get_another() -> None:
    copy = observing(turns=4)
    made = stored(copy, NOW + 600)
    draw = np.random.default_rng(2)
    days = 15
    for turn in (day * 1440 for day in range(1, days + 1)):
        copy.apply(NODE_METRIC, added([a_report_of(node, turn, 0.1, draw) for node in range(3)]))
    later = NOW + days * 86_400
    writes = planned(copy, later)
    assert {write.verb for write in writes} == {Verb.PATCH}, "a stamp, for the next manager to know"
    assert len(writes) == len(made)
    gone = planned(copy, later + 15 * 86_400)
    assert {write.verb for write in gone} == {Verb.DELETE}
    copy.apply(WORKLOAD_PROFILE, removed(made))
    assert planned(copy, later + 15 * 86_400) == []


def test_after_a_restart_published_figures_stay_until_more_stands_behind_new_ones() -> None:
    made = stored(observing(turns=30), NOW + 1800)
    copy = observing(turns=0)
    copy.apply(WORKLOAD_PROFILE, added(made))
    assert planned(copy, NOW + 1800) == []
    draw = np.random.default_rng(2)

    def published(turns: range) -> list[list[Any]]:
        for turn in turns:
            copy.apply(NODE_METRIC, added([a_report_of(node, turn, 0.4, draw) for node in range(3)]))
        view = copy.view("it", full=True)
        writes = built(WorkloadProfiles, enabled=True, keep_seconds=7200.0).plan(view, NOW + 1800 + 3600).writes
        return [
            [each["sensitivity"][0].get("lostSecondsPerPressure", 0) for each in write.body["status"]["resources"]]
            for write in writes
        ]

    before = [[each.sensitivity[0].lost_seconds_per_pressure for each in own.status.resources] for own in made]
    assert sorted(published(range(35, 40))) == sorted(before)
    assert sorted(published(range(40, 80))) != sorted(before)


def test_lists_without_entries_are_written_too() -> None:
    bodies = [write.body for write in planned(observing(), NOW + 600) if write.subresource == "status"]
    assert [] in [body["status"]["usualValues"] for body in bodies]


def used(cores: float, turns: range, *profiles: WorkloadProfile) -> ClusterCopy:
    """A cluster in which WEB uses so many cores and nothing is lost."""
    controller = built(WorkloadProfiles, enabled=True)
    copy = copy_of(controller, {NODE: [a_node("n0", CORES)], WORKLOAD_PROFILE: profiles})
    copy.view("it", full=True)
    copy.apply(POD, changed(pod("w0-x", container("app", "1", "1Gi"), nodeName="n0")))
    for turn in turns:
        copy.apply(NODE_METRIC, added([a_report("n0", pods=pods_of({WEB: cores}, {}), updated=at(turn))]))
    return copy


def test_what_containers_use_is_published_and_kept_while_reports_are_away() -> None:
    (made,) = stored(used(2.0, range(120)), NOW + 7200)
    (usage,) = made.status.usage
    assert (usage.container, usage.cpu.shares, usage.memory.shares) == ("app", [1000], [])
    restarted = used(0.1, range(120, 180), made)
    assert planned(restarted, NOW + 10_800 + 600) == [], "an hour does not replace two"
    (write,) = planned(used(0.1, range(120, 260), made), NOW + 15_600)
    assert write.body["status"]["usage"][0]["cpu"]["first"] < usage.cpu.first
    (line,) = [
        line
        for line in built(WorkloadProfiles, enabled=True).explain(
            restarted.view("it", full=True), kind_name(WORKLOAD_PROFILE), Key("d", made.metadata.name), NOW
        )
        if line.startswith("use of app")
    ]
    assert "CPU p50 2.0" in line


def test_a_profile_says_what_it_rests_on() -> None:
    copy = observing()
    (web,) = [each for each in stored(copy, NOW + 600) if each.spec.workload.name == "w0"]
    key = Key("d", web.metadata.name)
    view = copy.view("it", full=True)
    lines = built(WorkloadProfiles, enabled=True).explain(view, kind_name(WORKLOAD_PROFILE), key, NOW)
    assert any("sensitivity" in line and "+-" in line for line in lines)
    assert any("usual values of 1" in line for line in lines)


def test_a_profile_says_how_its_models_did() -> None:
    copy = observing()
    web = stored(copy, NOW + 600)[0]
    models = DeliveredModels(data="", sha256="", recall=0.9, plain_recall=0.7, false_alarms=0.02, rows=300)
    copy.apply(WORKLOAD_PROFILE, added([replace(web, status=replace(web.status, models=models))]))
    view = copy.view("it", full=True)
    key = Key("d", web.metadata.name)
    lines = built(WorkloadProfiles, enabled=True).explain(view, kind_name(WORKLOAD_PROFILE), key, NOW)
    assert "90.0% of the slow harm planted into 300 later rows" in lines[-1]
    assert "the best threshold 70.0%; 2.0% false alarms" in lines[-1]


def test_a_running_manager_publishes() -> None:
    with Twin() as twin, twin.client() as client:
        for resource in (NODE_METRIC, WORKLOAD_PROFILE):
            twin.serve(resource)
        draw = np.random.default_rng(1)
        twin.load(NODE, [to_load(a_node("n0", CORES))])
        twin.load(NODE_METRIC, [to_load(a_report_of(0, 0, 0.2, draw))])
        turns = itertools.count(1)

        def published() -> bool:
            # What is reported before the first plan is not taken in.
            status = msgspec.to_builtins(a_report_of(0, next(turns), 0.2, draw).status)
            client.patch(NODE_METRIC, Key("", "n0"), merge_patch({"status": status}), subresource="status")
            return len([each for each in twin.objects(WORKLOAD_PROFILE).values() if each.get("status")]) == 2

        controllers = {"workload_profiles": built(FastProfiles, enabled=True)}
        with running(twin, controllers, clock=lambda: NOW + 86_400):
            wait_for(published)
            listed = [msgspec.convert(each, WorkloadProfile) for each in twin.objects(WORKLOAD_PROFILE).values()]
            assert all(each.status.resources[0].name == "cpu" for each in listed)


class FastProfiles(WorkloadProfiles):
    """Plans every tenth of a second."""

    period_seconds = 0.1
