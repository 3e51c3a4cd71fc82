"""Coscheduling in an engine: all or nothing in one go, conditions with missing counts, restarts, groups."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.crds import PodGroup
from api.kube.workloads import WorkloadPodGroup
from api.placement import PlacementRequest, SimulatedPod
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.plugins.coscheduling import POD_GROUPS, WORKLOAD_GROUPS, Coscheduling
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.schedulinggates import SchedulingGates
from scheduler.simulated_placement import simulate
from tests.schedobjects import drain, engine, node, pod

KINDS = {"coscheduling": Coscheduling, "noderesourcesfit": NodeResourcesFit}
GANG = "gang.scheduling.koordinator.sh/"
PG = "pod-group.scheduling.sigs.k8s.io"


def member(gang: str, number: int, minimum: int = 3, *, cpu: str = "2", **keys: str) -> Any:
    fields = {name: keys.pop(name) for name in ("nodeName", "namespace") if name in keys}
    annotations = {GANG + "name": gang, GANG + "min-available": str(minimum)}
    annotations |= {GANG + key.replace("_", "-"): value for key, value in keys.items()}
    return pod(f"{gang}-{number}", {"cpu": cpu}, annotations=annotations, **fields)


def grouped(gang: str, number: int, **fields: Any) -> Any:
    return pod(f"{gang}-{number}", {"cpu": "2"}, labels={PG: gang}, **fields)


def cluster(nodes: int, placed: tuple[Any, ...] = (), **config: Any) -> Engine:
    return engine([node(f"n{n}") for n in range(nodes)], placed, kinds=KINDS, plugins={"coscheduling": config})


def submit(made: Engine, *pods: Any, now: float = 0.0) -> dict[str, str]:
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    return drain(made, now)


def declare(made: Engine, name: str, minimum: int, now: float = 0.0, **status: Any) -> None:
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum, "scheduleTimeoutSeconds": 1500},
        "status": status,
    }
    key = Key("default", name)
    made.on_object(ObjectEvent(POD_GROUPS, Action.UPDATE, key, None, msgspec.convert(document, PodGroup)), now)


def plugin(made: Engine) -> Coscheduling:
    found = made.plugins["Coscheduling"]
    assert isinstance(found, Coscheduling)
    return found


def conditions(made: Engine) -> dict[str, str]:
    """Message of the PodScheduled condition last written, by pod."""
    found: dict[str, str] = {}
    for write in made.writes:
        if write.verb is Verb.PATCH_STATUS:
            body: Any = write.body
            found[write.key.name] = body.body["status"]["conditions"][0]["message"]
    return found


def test_members_bind_together_when_the_last_has_come() -> None:
    made = cluster(2)
    assert submit(made, member("a", 0), member("a", 1)) == {}
    made.tick(1.0)
    assert conditions(made) == dict.fromkeys(("a-0", "a-1"), "gang default/a has 2 of 3 members, 1 missing")
    assert sorted(submit(made, member("a", 2))) == ["a-0", "a-1", "a-2"]


def test_binding_together_is_noted_on_the_pods() -> None:
    made = cluster(2)
    for number in range(3):
        made.on_pod(Action.ADD, member("a", number), 0.0)
    while made.schedule_one(0.0):
        pass
    patches = [binding.placed.info.patch for binding in made.bindings]
    assert len(patches) == 3
    expected = {
        "internal.scheduling.koordinator.sh/bind-gang-group-id": "default/a",
        "internal.scheduling.koordinator.sh/bind-gang-member-count": "3",
    }
    assert all(patch == expected for patch in patches)


def test_a_gang_that_does_not_fit_holds_nothing_and_says_how_many_are_missing() -> None:
    made = cluster(1)
    assert submit(made, *(member("a", n) for n in range(3))) == {}
    assert not made.snapshot.pods
    assert not made.waiting()
    messages = conditions(made)
    assert sorted(messages) == ["a-0", "a-1", "a-2"]
    assert all("gang default/a has" in text for name, text in messages.items() if name != "a-2")
    assert "Insufficient cpu" in messages["a-0"]
    assert submit(made, pod("small", {"cpu": "4"})) == {"small": "n0"}


def test_room_that_appears_brings_the_whole_gang_at_once() -> None:
    made = cluster(1)
    submit(made, *(member("a", n) for n in range(3)))
    made.on_node(Action.ADD, node("n1"), 30.0)
    assert sorted(drain(made, 30.0)) == ["a-0", "a-1", "a-2"]


def test_two_gangs_do_not_starve_each_other() -> None:
    made = cluster(2)
    pods = [member(gang, n) for n in range(3) for gang in ("a", "b")]
    bound = submit(made, *pods)
    assert len(bound) == 3
    assert len({name[0] for name in bound}) == 1
    assert {info.key for info, _ in made.waiting().values()} == set()


def test_a_loose_gang_keeps_its_places_until_the_time_is_over() -> None:
    made = cluster(1)
    submit(made, *(member("a", n, mode="NonStrict", waiting_time="25m") for n in range(3)))
    assert len(made.waiting()) == 2
    made.tick(1499.0)
    assert len(made.waiting()) == 2
    made.tick(1500.0)
    assert not made.waiting()
    assert not made.snapshot.pods


def test_a_loose_gang_completes_with_later_room() -> None:
    made = cluster(1)
    submit(made, *(member("a", n, mode="NonStrict") for n in range(3)))
    made.on_node(Action.ADD, node("n1"), 30.0)
    assert sorted(drain(made, 30.0)) == ["a-0", "a-1", "a-2"]


def hold_each_other(of_a: int, of_b: int) -> Engine:
    """Gang a holds n0, gang b, which came later, n1: two pods of 2 CPUs and four of 1. Both need more."""
    made = cluster(2, (pod("filler", {"cpu": "4"}, nodeName="n1"),))
    early, late = {"creation_timestamp": "2026-01-01T00:00:00Z"}, {"creation_timestamp": "2026-01-02T00:00:00Z"}
    loose = {GANG + "mode": "NonStrict"}
    for name, count, cpu, first, created in (("a", of_a, "2", "0", early), ("b", of_b, "1", "9", late)):
        for number in range(count):
            keys = {GANG + "name": name, GANG + "min-available": str(count), **loose}
            labels = {"koordinator.sh/priority": first}
            each = pod(f"{name}-{number}", {"cpu": cpu}, annotations=keys, labels=labels, **created)
            made.on_pod(Action.ADD, each, 0.0)
        drain(made, 0.0)
    made.on_pod(Action.DELETE, pod("filler", {"cpu": "4"}, nodeName="n1"), 20.0)
    drain(made, 20.0)
    return made


def holders(made: Engine) -> str:
    return "".join(sorted(info.pod.metadata.name[0] for info, _ in made.waiting().values()))


def test_loose_gangs_that_hold_each_others_room_are_told_apart_by_age() -> None:
    made = hold_each_other(3, 5)
    assert holders(made) == "aabbbb"
    made.tick(21.0)
    made.tick(30.9)
    assert holders(made) == "aabbbb"
    made.tick(31.1)
    assert sorted(drain(made, 31.1)) == ["a-0", "a-1", "a-2"]
    # What was given back waits for room again, and is no reason to try over and over.
    made.tick(60.0)
    assert drain(made, 60.0) == {}


def test_a_loose_gang_alone_keeps_what_it_holds() -> None:
    made = cluster(1)
    submit(made, *(member("a", n, mode="NonStrict") for n in range(3)))
    for now in range(1, 100):
        made.tick(float(now))
    assert holders(made) == "aa"


def test_loose_gangs_that_would_fit_in_no_case_keep_what_they_hold() -> None:
    made = hold_each_other(5, 9)
    for now in range(21, 100):
        made.tick(float(now))
        drain(made, float(now))
    assert holders(made) == "aabbbb"


def test_groups_across_namespaces_bind_together() -> None:
    both = json.dumps(["default/a", "other/b"])
    made = cluster(2)
    assert submit(made, *(member("a", n, 2, groups=both) for n in range(2))) == {}
    bound = submit(made, *(member("b", n, 2, groups=both, namespace="other") for n in range(2)))
    assert sorted(bound) == ["a-0", "a-1", "b-0", "b-1"]


def test_a_deleted_member_frees_the_waiting_ones() -> None:
    made = cluster(2)
    for number in range(3):
        made.on_pod(Action.ADD, member("a", number), 0.0)
    made.schedule_one(0.0)
    assert len(made.waiting()) == 1
    made.on_pod(Action.DELETE, member("a", 2), 0.0)
    drain(made, 0.0)
    assert not made.waiting()
    assert not made.snapshot.pods
    made.tick(1.0)
    assert conditions(made)["a-0"] == "gang default/a has 2 of 3 members, 1 missing"


def test_after_a_restart_missing_members_follow_those_already_bound() -> None:
    made = cluster(2, (member("a", 0, nodeName="n0"), member("a", 1, nodeName="n0")))
    assert submit(made, member("a", 2)) == {"a-2": "n1"}


@pytest.mark.parametrize("bound", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=str)
@pytest.mark.parametrize("listed", list(itertools.permutations(range(3))), ids=str)
def test_after_a_restart_members_follow_in_whatever_order_they_are_listed(
    listed: tuple[int, ...], bound: tuple[int, ...]
) -> None:
    """A pending member that is listed before those already bound is not held back for ever."""
    made = cluster(2)
    pods = [member("a", n, nodeName="n0") if n in bound else member("a", n) for n in listed]
    assert submit(made, *pods).keys() == {f"a-{n}" for n in range(3) if n not in bound}
    made.tick(1.0)
    assert conditions(made) == {}


def test_after_a_restart_a_gang_follows_one_of_its_group_that_is_bound() -> None:
    both = json.dumps(["default/a", "default/b"])
    pending = (member("b", n, 2, groups=both) for n in range(2))
    bound = (member("a", n, 2, groups=both, nodeName="n0") for n in range(2))
    assert submit(cluster(2), *pending, *bound) == {"b-0": "n1", "b-1": "n1"}


def test_after_a_restart_the_rest_of_a_gang_goes_before_others() -> None:
    """Their room was theirs before; whatever takes it leaves the gang in part for ever."""
    made = cluster(2)
    for each in (
        *(pod(f"other-{n}", {"cpu": "2"}, priority=n) for n in range(2)),
        member("a", 0),
        member("a", 1, nodeName="n0"),
        member("a", 2, nodeName="n0"),
    ):
        made.on_pod(Action.ADD, each, 0.0)
    made.leads()
    assert drain(made) == {"a-0": "n1", "other-1": "n1"}


def test_members_that_others_bind_wake_no_member_that_was_refused_for_another_reason() -> None:
    """It is refused for want of room, and backs off; before, each of the bound ones had the gang tried again."""
    made = cluster(1)
    assert submit(made, *(member("a", n) for n in range(3))) == {}
    tried = made.queue.starts
    for number in range(3, 6):
        assert submit(made, member("a", number, cpu="0", nodeName="n0"), now=0.1) == {}
        made.tick(0.1)
    assert made.queue.starts == tried


def of_priority(gang: str, number: int, priority: int, **fields: Any) -> Any:
    annotations = {GANG + "name": gang, GANG + "min-available": "3"}
    return pod(f"{gang}-{number}", {"cpu": "2"}, priority=priority, annotations=annotations, **fields)


@pytest.mark.parametrize("is_bound_first", [True, False], ids=["bound-listed-first", "pending-listed-first"])
def test_after_a_restart_the_rest_of_a_gang_goes_before_no_pod_of_higher_priority(is_bound_first: bool) -> None:
    """A preempted member looks as one that was never bound, and the pod that preempted it waits for its room."""
    made = cluster(2, (pod("filler", {"cpu": "2"}, nodeName="n1"),))
    bound = [of_priority("low", n, 0, nodeName="n0") for n in (1, 2)]
    pending = [of_priority("low", 0, 0), pod("urgent", {"cpu": "2"}, priority=1000)]
    for each in (*bound, *pending) if is_bound_first else (*pending, *bound):
        made.on_pod(Action.ADD, each, 0.0)
    made.leads()
    assert drain(made) == {"urgent": "n1"}


def test_after_a_restart_gangs_that_are_bound_in_part_follow_by_priority() -> None:
    made = cluster(3, (pod("filler", {"cpu": "2"}, nodeName="n2"),))
    for number, (gang, priority) in enumerate((("a", 0), ("z", 1000))):
        made.on_pod(Action.ADD, of_priority(gang, 0, priority), 0.0)
        for n in (1, 2):
            made.on_pod(Action.ADD, of_priority(gang, n, priority, nodeName=f"n{number}"), 0.0)
    made.leads()
    assert drain(made) == {"z-0": "n2"}


@pytest.mark.parametrize(
    ("policy", "bound"),
    [
        pytest.param("only-waiting", {}, id="only-waiting"),
        pytest.param("waiting-and-running", {"a-2": "n1"}, id="waiting-and-running"),
    ],
)
def test_policies_after_a_restart(policy: str, bound: dict[str, str]) -> None:
    placed = tuple(member("a", n, nodeName="n0", match_policy=policy) for n in range(2))
    assert submit(cluster(2, placed), member("a", 2, match_policy=policy)) == bound


def test_pod_groups_and_their_status() -> None:
    made = cluster(2)
    submit(made, grouped("g", 0), grouped("g", 1))
    made.tick(1.0)
    assert conditions(made)["g-0"].startswith("gang default/g is unknown: neither a PodGroup nor")
    declare(made, "g", 2, now=2.0)
    assert sorted(drain(made, 2.0)) == ["g-0", "g-1"]
    written = []
    status: dict[str, Any] = {}
    for _ in range(4):
        made.writes.clear()
        made.tick(3.0)
        for write in made.writes:
            if write.resource.kind == "PodGroup":
                body: Any = write.body
                status |= body.body["status"]
                written.append(body.body["status"]["phase"])
        declare(made, "g", 2, now=3.0, **status)
    assert written == ["Pending", "PreScheduling", "Scheduled"]
    assert status["scheduled"] == 2
    assert plugin(made).describe("default", "g")["waitTimeSeconds"] == 1500.0


def ran(gang: str, number: int, phase: str, **fields: Any) -> Any:
    return grouped(gang, number, phase=phase, nodeName="n0", **fields)


def reported(made: Engine, gang: str, minimum: int, **status: Any) -> dict[str, Any]:
    """The PodGroup's status once nothing more is written, starting from `status`."""
    for _ in range(6):
        made.writes.clear()
        made.tick(3.0)
        bodies: list[Any] = [write.body for write in made.writes if write.resource.kind == "PodGroup"]
        if not bodies:
            return status
        status |= bodies[0].body["status"]
        declare(made, gang, minimum, now=3.0, **status)
    raise AssertionError("the status never settles")


@pytest.mark.parametrize(
    ("phases", "phase", "succeeded", "failed"),
    [
        pytest.param(["Running", "Running"], "Running", 0, 0, id="running"),
        pytest.param(["Running", "Succeeded"], "Running", 1, 0, id="one-succeeded"),
        pytest.param(["Succeeded", "Succeeded"], "Finished", 2, 0, id="all-succeeded"),
        pytest.param(["Running", "Failed"], "Failed", 0, 1, id="one-failed"),
        pytest.param(["Succeeded", "Failed"], "Failed", 1, 1, id="succeeded-and-failed"),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_pods_that_finish_end_their_group(
    phases: list[str], phase: str, succeeded: int, failed: int, restart: bool
) -> None:
    made = cluster(1)
    declare(made, "g", 2)
    if not restart:
        for number in range(2):
            made.on_pod(Action.ADD, ran("g", number, "Running"), 0.0)
        assert reported(made, "g", 2)["phase"] == "Running"
    for number, each in enumerate(phases):
        for _ in range(2):
            made.on_pod(Action.ADD if restart else Action.UPDATE, ran("g", number, each), 1.0)
    status = reported(made, "g", 2, phase="Running", scheduled=2, running=2)
    assert status["phase"] == phase
    assert (status.get("succeeded", 0), status.get("failed", 0)) == (succeeded, failed)
    assert (status["scheduled"], status["running"]) == (2, phases.count("Running"))


def test_a_finished_pod_that_is_deleted_or_replaced_counts_no_more() -> None:
    made = cluster(1)
    declare(made, "g", 3)
    for number in range(2):
        made.on_pod(Action.ADD, ran("g", number, "Succeeded"), 0.0)
    status = reported(made, "g", 3)
    assert (status["succeeded"], status["scheduled"]) == (2, 2)
    made.on_pod(Action.DELETE, ran("g", 0, "Succeeded"), 1.0)
    status = reported(made, "g", 3, **status)
    assert (status["succeeded"], status["scheduled"]) == (1, 1)
    made.on_pod(Action.ADD, ran("g", 1, "Running", uid="again"), 2.0)
    status = reported(made, "g", 3, **status)
    assert (status["succeeded"], status["running"], status["scheduled"]) == (0, 1, 1)
    made.on_pod(Action.UPDATE, ran("g", 1, "Succeeded", uid="again"), 3.0)
    made.on_pod(Action.DELETE, ran("g", 1, "Succeeded"), 3.0)
    status = reported(made, "g", 3, **status)
    assert (status["succeeded"], status["running"], status["scheduled"]) == (1, 0, 1)


def test_a_group_of_the_same_name_starts_without_the_ends_of_the_last() -> None:
    made = cluster(1)
    declare(made, "g", 1)
    made.on_pod(Action.ADD, ran("g", 0, "Succeeded"), 0.0)
    assert reported(made, "g", 1)["phase"] == "Finished"
    made.on_object(ObjectEvent(POD_GROUPS, Action.DELETE, Key("default", "g"), PodGroup(), None), 1.0)
    declare(made, "g", 1, now=2.0)
    assert reported(made, "g", 1)["phase"] == "Pending"


def test_a_failed_binding_is_tried_again_without_the_others() -> None:
    made = cluster(2)
    for number in range(3):
        made.on_pod(Action.ADD, member("a", number), 0.0)
    while made.schedule_one(0.0):
        pass
    first, *rest = [made.bindings.popleft() for _ in range(3)]
    for binding in rest:
        made.bound(binding, 0.0)
    made.bind_failed(first, "conflict", 0.0)
    assert len(made.snapshot.pods) == 2
    assert list(drain(made, 60.0)) == [first.placed.info.pod.metadata.name]


events = st.one_of(
    st.tuples(st.just("create"), st.sampled_from("abc"), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.sampled_from("abc"), st.integers(0, 3)),
    st.tuples(st.just("node"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("bind"), st.booleans()),
    st.tuples(st.just("tick"), st.integers(1, 700)),
)


@settings(max_examples=80, deadline=None)
@given(history=st.lists(events, max_size=40))
@example(history=[("step", 1), ("step", 1), ("delete", "b", 0), ("delete", "b", 1)])
@example(history=[("node", 2, True), ("step", 3), ("node", 2, False)])
@example(
    history=[
        ("node", 1, True),
        ("step", 1),
        ("step", 3),
        ("delete", "a", 0),
        ("delete", "a", 1),
        ("bind", False),
        ("delete", "b", 1),
    ]
)
def test_all_or_nothing_under_random_events(history: list[tuple[Any, ...]]) -> None:
    made = cluster(1)
    both = json.dumps(["default/a", "default/b"])
    minimum = {"a": 2, "b": 2, "c": 3}
    now = 0.0
    complete: set[str] = set()

    def build(gang: str, number: int) -> Any:
        return member(gang, number, minimum[gang], groups=both if gang in "ab" else "")

    def placed(gang: str) -> int:
        return sum(p.info.pod.metadata.name[0] == gang for p in made.snapshot.pods.values())

    def check() -> None:
        for binding in made.bindings:
            gang = binding.placed.info.pod.metadata.name[0]
            group = "ab" if gang in "ab" else gang
            if gang not in complete:
                assert all(placed(each) >= minimum[each] for each in group)
                complete.update(group)

    for gang, count in minimum.items():
        for number in range(count):
            made.on_pod(Action.ADD, build(gang, number), now)
    for event in history:
        now += 1.0
        match event:
            case ("create", gang, number):
                if f"uid-{gang}-{number}" not in made.snapshot.pods:
                    made.on_pod(Action.ADD, build(gang, number), now)
            case ("delete", gang, number):
                kept = [b for b in made.bindings if b.placed.info.pod.metadata.name != f"{gang}-{number}"]
                made.bindings.clear()
                made.bindings.extend(kept)
                made.on_pod(Action.DELETE, build(gang, number), now)
            case ("node", number, present) if present or number:
                made.on_node(Action.ADD if present else Action.DELETE, node(f"n{number}"), now)
            case ("step", times):
                for _ in range(times):
                    made.schedule_one(now)
                    check()
            case ("bind", succeeds) if made.bindings:
                binding = made.bindings.popleft()
                if succeeds:
                    made.bound(binding, now)
                else:
                    made.bind_failed(binding, "no", now)
            case ("tick", seconds):
                now += seconds
                made.tick(now)
    now += 60.0
    while made.schedule_one(now):
        check()
    assert not made.waiting(), "an attempt that is over holds nothing"
    for row in range(made.snapshot.rows_used):
        if made.snapshot.live[row]:
            assert (made.snapshot.requested[row] <= made.snapshot.allocatable[row]).all()


def ask(made: Engine, *uids: str, gone: tuple[str, ...] = ()) -> list[str]:
    request = PlacementRequest([SimulatedPod(uid=uid) for uid in uids], list(gone))
    return [placement.node for placement in simulate(made, request, 0.0).placements]


def test_members_supposed_gone_are_not_forgotten() -> None:
    """The gang's spec is that of its first member, which differs from the last one's."""
    first, second = member("a", 0, 1, nodeName="n0"), member("a", 1, 2, nodeName="n0")
    made = cluster(2, (first, second))
    before = plugin(made).describe("default", "a")
    assert "" not in ask(made, "uid-a-0", "uid-a-1")
    assert plugin(made).describe("default", "a") == before
    assert before["minRequiredNumber"] == 1


def test_a_simulation_of_a_member_leaves_its_waiting_siblings_alone() -> None:
    bound = member("a", 0, match_policy="only-waiting", nodeName="n0")
    made = cluster(2, (bound, pod("full", {"cpu": "4"}, nodeName="n1")))
    for number in (1, 2):
        made.on_pod(Action.ADD, member("a", number), 0.0)
    made.schedule_one(0.0)
    assert list(made.waiting()) == ["uid-a-1"]
    before = plugin(made).describe("default", "a")
    assert "" not in ask(made, "uid-a-0", "uid-a-1", "uid-a-2", gone=("uid-full",))
    assert list(made.waiting()) == ["uid-a-1"]
    assert plugin(made).describe("default", "a") == before


def test_a_failure_of_the_running_attempt_does_not_answer_for_a_simulation() -> None:
    made = cluster(1, (pod("old", {"cpu": "2"}, nodeName="n0"),))
    for number in range(2):
        made.on_pod(Action.ADD, member("a", number, 2), 0.0)
    made.schedule_one(0.0)
    made.schedule_one(0.0)
    assert "" not in ask(made, "uid-a-0", "uid-a-1", gone=("uid-old",))


def workload_group(made: Engine, policy: dict[str, Any], action: Action = Action.ADD, now: float = 0.0) -> None:
    document = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingPolicy": policy}}
    item = msgspec.convert(document, WorkloadPodGroup)
    gone = action is Action.DELETE
    event = ObjectEvent(WORKLOAD_GROUPS, action, Key("default", "g"), item if gone else None, None if gone else item)
    made.on_object(event, now)


def of_workload(name: str, cpu: str = "1") -> Any:
    return pod(name, {"cpu": cpu}, schedulingGroup={"podGroupName": "g"})


def workload_engine(cpus: str) -> Engine:
    kinds = {"gangs": Coscheduling, "fit": NodeResourcesFit, "gates": SchedulingGates}
    return engine([node("n0", allocatable={"cpu": cpus})], kinds=kinds)


def test_a_group_of_scheduling_k8s_io_is_placed_together() -> None:
    made = workload_engine("4")
    made.on_pod(Action.ADD, of_workload("a"), 0.0)
    assert drain(made) == {}
    assert "waiting for its PodGroup of scheduling.k8s.io" in str(made.gate(made.classes.info(of_workload("a"))))
    workload_group(made, {"gang": {"minCount": 2}}, now=1.0)
    assert drain(made, 1.0) == {}
    made.on_pod(Action.ADD, of_workload("b"), 2.0)
    assert set(drain(made, 2.0)) == {"a", "b"}
    made.on_pod(Action.ADD, of_workload("c"), 3.0)
    assert set(drain(made, 3.0)) == {"c"}


def test_a_group_of_scheduling_k8s_io_that_does_not_fit_takes_nothing() -> None:
    made = workload_engine("3")
    workload_group(made, {"gang": {"minCount": 2}})
    for name in ("a", "b"):
        made.on_pod(Action.ADD, of_workload(name, "2"), 0.0)
    assert drain(made) == {}
    assert not made.snapshot.pods


def test_a_basic_group_of_scheduling_k8s_io_holds_nobody_back() -> None:
    made = workload_engine("3")
    workload_group(made, {"basic": {}})
    for name in ("a", "b"):
        made.on_pod(Action.ADD, of_workload(name, "2"), 0.0)
    assert len(drain(made)) == 1


def test_a_group_of_scheduling_k8s_io_is_no_gang_of_the_same_name() -> None:
    made = workload_engine("4")
    made.on_pod(Action.ADD, member("g", 0, 1, cpu="1"), 0.0)
    assert set(drain(made)) == {"g-0"}
    made.on_pod(Action.ADD, of_workload("a"), 0.0)
    assert drain(made) == {}
    workload_group(made, {"gang": {"minCount": 1}}, now=1.0)
    workload_group(made, {"gang": {"minCount": 1}}, Action.DELETE, now=1.0)
    made.on_pod(Action.ADD, of_workload("b"), 2.0)
    assert "b" not in drain(made, 2.0), "its group is gone"
