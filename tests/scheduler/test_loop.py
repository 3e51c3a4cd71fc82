"""The loop against the in-process API server: pods get bound, once, whatever goes wrong."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, cast

import msgspec
import pytest

from api.crds import ELASTIC_QUOTA
from api.kube.objects import Node, Pod
from cluster import NODES, PODS, DeltaType, Key, StoreDelta, merge_patch
from cluster.events import Event, EventRecorder
from cluster.resources import RESOURCE_CLAIMS, custom
from cluster.twin import Twin
from cluster.twin.faults import Fault, FaultType
from scheduler.engine import Engine
from scheduler.extender import BindingArgs
from scheduler.framework import Action, Reason
from scheduler.loop import ForbiddenKindError, Loop
from scheduler.outcome import AttemptOutcome, Result
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.dynamicresources import CLAIMS, DynamicResources
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.profile import SchedulerSettings
from scheduler.writer import WriteFailure
from tests.schedobjects import node, pod, running_loop
from tests.waiting import wait_for

BIND = frozenset({"bind"})
KINDS = {"prioritysort": PrioritySort, "noderesourcesfit": NodeResourcesFit, "defaultbinder": DefaultBinder}


def document(item: Node | Pod) -> dict[str, object]:
    made = msgspec.to_builtins(item)
    assert isinstance(made, dict)
    made["metadata"].pop("uid", None)
    return made


def running(twin: Twin) -> AbstractContextManager[Loop]:
    return running_loop(twin, Engine(SchedulerSettings(backoff_initial_seconds=0.05), kinds=KINDS))


def nodes_of(twin: Twin) -> dict[str, str]:
    return {key.name: item["spec"].get("nodeName", "") for key, item in twin.objects(PODS).items()}


def condition_of(twin: Twin, name: str) -> dict[str, str]:
    status = next(item for key, item in twin.objects(PODS).items() if key.name == name)["status"]
    return next(iter(status.get("conditions", ())), {})


def binds(twin: Twin) -> Counter[str]:
    """Number of writes of each pod's node, from the linear history of writes."""
    told: Counter[str] = Counter()
    last: dict[str, str] = {}
    for event in twin.history(PODS):
        name, where = event.record.key.name, event.record.document["spec"].get("nodeName", "")
        if where and last.get(name, "") != where:
            told[name] += 1
        last[name] = where
    return told


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as made:
        yield made


def test_pods_are_bound_within_capacity_and_the_rest_is_told_why(twin: Twin) -> None:
    twin.load(NODES, [document(node(f"n{index}")) for index in range(2)])
    twin.load(PODS, [document(pod(f"p{index}", {"cpu": "1"})) for index in range(9)])
    with running(twin):
        wait_for(lambda: sum(map(bool, nodes_of(twin).values())) == 8)
        wait_for(lambda: all(item["status"].get("conditions") for item in twin.objects(PODS).values()))
    assert Counter(nodes_of(twin).values()) == {"n0": 4, "n1": 4, "": 1}
    left = next(item for item in twin.objects(PODS).values() if not item["spec"].get("nodeName"))
    assert left["status"]["conditions"][0]["message"] == "0/2 nodes are available: 2 Insufficient cpu."


def test_a_pod_that_leaves_makes_room(twin: Twin) -> None:
    twin.load(NODES, [document(node("n0"))])
    twin.load(PODS, [document(pod("old", {"cpu": "4"}))])
    with running(twin), twin.client() as client:
        wait_for(lambda: nodes_of(twin)["old"] == "n0")
        twin.load(PODS, [document(pod("new", {"cpu": "4"}))])
        time.sleep(0.1)
        assert nodes_of(twin)["new"] == ""
        done = merge_patch({"status": {"phase": "Succeeded"}})
        client.patch(PODS, Key("default", "old"), done, subresource="status")
        wait_for(lambda: nodes_of(twin)["new"] == "n0")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(FaultType.DROP, BIND, times=4, after=True), id="answer-lost-after-the-write"),
        pytest.param(Fault(FaultType.DROP, BIND, times=4), id="lost-before-the-write"),
        pytest.param(Fault(FaultType.ERROR, BIND, times=4, status=500), id="server-error"),
        pytest.param(Fault(FaultType.ERROR, BIND, times=4, status=500, after=True), id="error-after-the-write"),
        pytest.param(Fault(FaultType.ERROR, BIND, times=4, status=429), id="too-many-requests"),
        pytest.param(Fault(FaultType.ERROR, BIND, times=4, status=409), id="conflict"),
    ],
)
def test_lost_answers_bind_no_pod_twice(twin: Twin, fault: Fault) -> None:
    twin.load(NODES, [document(node(f"n{index}")) for index in range(3)])
    twin.load(PODS, [document(pod(f"p{index}", {"cpu": "1"})) for index in range(12)])
    twin.faults.add(fault)
    with running(twin):
        wait_for(lambda: all(nodes_of(twin).values()))
    assert Counter(nodes_of(twin).values()) == {"n0": 4, "n1": 4, "n2": 4}
    assert set(binds(twin).values()) == {1}


def test_a_restart_takes_over_what_is_bound(twin: Twin) -> None:
    twin.load(NODES, [document(node("n0")), document(node("n1"))])
    twin.load(PODS, [document(pod(f"p{index}", {"cpu": "1"})) for index in range(5)])
    with running(twin):
        wait_for(lambda: all(nodes_of(twin).values()))
    before = nodes_of(twin)
    twin.load(PODS, [document(pod(f"q{index}", {"cpu": "1"})) for index in range(4)])
    with running(twin):
        wait_for(lambda: sum(map(bool, nodes_of(twin).values())) == 8)
        time.sleep(0.1)
    after = nodes_of(twin)
    assert {name: after[name] for name in before} == before
    assert Counter(after.values()) == {"n0": 4, "n1": 4, "": 1}
    assert set(binds(twin).values()) == {1}


def test_dropped_watches_lose_no_pod(twin: Twin) -> None:
    twin.load(NODES, [document(node(f"n{index}")) for index in range(3)])
    with running(twin):
        for index in range(10):
            twin.load(PODS, [document(pod(f"p{index}", {"cpu": "1"}))])
            twin.drop_watches()
        wait_for(lambda: all(nodes_of(twin).values()))
    assert max(Counter(nodes_of(twin).values()).values()) <= 4


def test_a_new_leader_sees_what_the_old_one_bound_last(twin: Twin) -> None:
    leads = threading.Event()
    twin.load(NODES, [document(node("n0"))])
    loop = Loop(twin.client(), Engine(SchedulerSettings(), kinds=KINDS), leading=leads.is_set)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        assert loop.ready.wait(10)
        twin.stall_watches()
        # Bound by the old leader, unseen because the watch is silent.
        twin.load(PODS, [document(pod("last", {"cpu": "3"}, nodeName="n0"))])
        waiting = pod("mine", {"cpu": "2"}, uid="uid-mine")
        loop.call(lambda: loop.engine.on_pod(Action.ADD, waiting, time.time()))
        leads.set()
        wait_for(lambda: loop.call(lambda: loop.engine.queue.counts()["unschedulable"]) == 1)
        assert loop.call(lambda: len(loop.engine.snapshot.pods)) == 1
    finally:
        loop.stop()
        thread.join(10)


def test_a_new_leader_sees_what_the_old_one_gave_to_claims_last(twin: Twin) -> None:
    leads = threading.Event()
    key = Key("default", "c")
    twin.load(RESOURCE_CLAIMS, [{"metadata": {"name": "c", "namespace": "default", "uid": "uid-c"}, "spec": {}}])
    plugin = {"dynamicresources": DynamicResources}
    loop = Loop(twin.client(), Engine(SchedulerSettings(), kinds=KINDS | plugin), leading=leads.is_set)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        assert loop.ready.wait(10)
        before = loop.call(lambda: loop.engine.objects(CLAIMS)[key])
        twin.stall_watches()
        given = {"status": {"allocation": {"devices": {"results": []}}}}
        twin.client().patch(CLAIMS, key, merge_patch(given), subresource="status")
        leads.set()
        wait_for(lambda: loop.call(lambda: loop.engine.objects(CLAIMS)[key].status.allocation is not None))
        # What the watch still brings is older than what was read.
        loop.call(lambda: loop._receive((CLAIMS, [StoreDelta(DeltaType.UPDATED, key, before, before)])))
        assert loop.call(lambda: loop.engine.objects(CLAIMS)[key].status.allocation) is not None
    finally:
        loop.stop()
        thread.join(10)


def test_a_fault_in_an_answer_does_not_end_the_loop(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    twin.load(NODES, [document(node("n0"))])
    with running(twin) as loop:
        loop._inbox.put(WriteFailure(None, "", repeat=True))  # type: ignore[arg-type]
        twin.load(PODS, [document(pod("p", {"cpu": "1"}))])
        wait_for(lambda: all(nodes_of(twin).values()))
    assert "message could not be taken in" in caplog.text


def test_a_fault_in_a_round_does_not_end_the_loop(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    twin.load(NODES, [document(node("n0"))])
    with running(twin) as loop:
        dispatch, faults = loop._dispatch, iter([RuntimeError("once")])

        def faulty() -> None:
            for fault in faults:
                raise fault
            dispatch()

        monkeypatch.setattr(loop, "_dispatch", faulty)
        twin.load(PODS, [document(pod("p", {"cpu": "1"}))])
        wait_for(lambda: all(nodes_of(twin).values()))
    assert next(faults, None) is None


def test_a_loop_whose_rounds_fail_is_stuck(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty() -> None:
        raise RuntimeError("each time")

    monkeypatch.setattr("scheduler.loop.RETRY_ROUND_SECONDS", 0.01)
    with running(twin) as loop:
        monkeypatch.setattr(loop, "_round", faulty)
        wait_for(lambda: loop.stuck_seconds() > 3.0)


def test_a_standby_writes_nothing_and_states_everything_once_it_leads(twin: Twin) -> None:
    leads = threading.Event()
    twin.serve(custom(ELASTIC_QUOTA))
    twin.load(NODES, [document(node("n0"))])
    twin.load(PODS, [document(pod("p", {"cpu": "9"}))])
    loop = Loop(twin.client(), Engine(SchedulerSettings()), leading=leads.is_set)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        assert loop.ready.wait(10)
        loop.call(lambda: loop.engine.tick(time.time()))
        before = twin.revision
        time.sleep(2.5)
        assert twin.revision == before
        leads.set()
        wait_for(lambda: len(twin.objects(custom(ELASTIC_QUOTA))) == 3)
        wait_for(lambda: bool(next(iter(twin.objects(PODS).values()))["status"].get("conditions")))
    finally:
        loop.stop()
        thread.join(10)


@pytest.mark.parametrize("status", [403, 429, 500])
def test_a_status_that_was_refused_is_written_again(twin: Twin, status: int) -> None:
    twin.load(NODES, [document(node("n0"))])
    twin.load(PODS, [document(pod("p", {"cpu": "9"}))])
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"patch"}), times=1 if status == 403 else 8, status=status))
    with running(twin):
        wait_for(lambda: bool(next(iter(twin.objects(PODS).values()))["status"].get("conditions")), 30)


def test_an_outage_of_the_api_server_does_not_end_the_loop(twin: Twin) -> None:
    twin.load(NODES, [document(node("n0"))])
    with running(twin) as loop:
        twin.faults.add(Fault(FaultType.DROP, frozenset(), times=60))
        twin.drop_watches()
        time.sleep(1.5)
        assert loop.stuck_seconds() < 1.5
        twin.faults.clear()
        twin.load(PODS, [document(pod("p", {"cpu": "1"}))])
        wait_for(lambda: nodes_of(twin)["p"] == "n0", 40)


def test_a_kind_that_may_not_be_listed_is_named_and_done_without(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    twin.serve(custom(ELASTIC_QUOTA))
    twin.load(NODES, [document(node("n0"))])
    twin.load(PODS, [document(pod("p", {"cpu": "1"}))])
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"list"}), "elasticquotas", times=10_000, status=403))
    with running_loop(twin, Engine(SchedulerSettings())):
        wait_for(lambda: nodes_of(twin)["p"] == "n0")
    assert "may not list and watch elasticquotas of scheduling.sigs.k8s.io" in caplog.text


def test_nodes_that_may_not_be_listed_end_the_loop_with_the_permission(twin: Twin) -> None:
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"list"}), "nodes", times=10_000, status=403))
    with pytest.raises(ForbiddenKindError, match="may not list and watch nodes of the core group"):
        Loop(twin.client(), Engine(SchedulerSettings(), kinds=KINDS)).run()


def test_a_pod_that_cannot_be_read_is_told_and_counted(twin: Twin) -> None:
    twin.load(NODES, [document(node("n0"))])
    with running(twin) as loop:
        twin.load(PODS, [document(pod("p", {"cpu": "x" * 70})), document(pod("q", {"cpu": "1"}))])
        wait_for(lambda: nodes_of(twin)["q"] == "n0")
        told = wait_for(lambda: condition_of(twin, "p"))
        faults = loop.metrics.registry.get_sample_value("koord_scheduler_faults_total", {"where": "pods"})
    assert told["message"].startswith("the scheduler cannot read this pod: not a quantity: ")
    assert faults is not None
    assert faults >= 1


class Recorded:
    """Events that a loop records, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)


def test_victims_of_preemption_have_an_event_that_names_the_other_pod(twin: Twin) -> None:
    twin.load(NODES, [document(node("n0"))])
    twin.load(PODS, [document(pod("old", {"cpu": "4"}, nodeName="n0"))])
    twin.load(PODS, [document(pod("new", {"cpu": "4"}, priority=10))])
    recorded = Recorded()
    kinds = {**KINDS, "defaultpreemption": DefaultPreemption}
    loop = Loop(
        twin.client(),
        Engine(SchedulerSettings(backoff_initial_seconds=0.05), kinds=kinds),
        recorder=cast(EventRecorder, recorded),
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: "Preempted" in [event.reason for event in recorded.events])
    finally:
        loop.stop()
        thread.join(20)
    (event,) = [event for event in recorded.events if event.reason == "Preempted"]
    assert event.regarding.name == "old"
    assert event.related is not None
    assert event.related.name == "new"
    assert event.note.endswith("on node n0")


ON_NODE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
IN_ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}


def bound_to(*terms: Any) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}}


LAST_RESORT = ("LastResort", "No other node takes the pod than n0, which was avoided: damp.")


@pytest.mark.parametrize(
    ("fields", "outside", "told"),
    [
        pytest.param({}, False, [LAST_RESORT], id="chosen"),
        pytest.param({"affinity": bound_to(ON_NODE)}, False, [], id="its-own-node"),
        pytest.param(
            {"affinity": bound_to(ON_NODE, IN_ZONE)},
            False,
            [LAST_RESORT],
            id="its-own-node-or-others",
        ),
        pytest.param({}, True, [("AvoidedNode", "Another scheduler chose n0, which is avoided: damp.")], id="outside"),
    ],
)
def test_who_chose_a_node_that_is_avoided_is_told(
    twin: Twin, fields: dict[str, Any], outside: bool, told: list[tuple[str, str]]
) -> None:
    recorded, made = Recorded(), Engine(SchedulerSettings(), kinds=KINDS)
    loop = Loop(twin.client(), made, recorder=cast(EventRecorder, recorded))
    info = made.classes.info(pod("p", **fields))
    info.outside = outside
    loop._record(AttemptOutcome(Result.SCHEDULED, info, "n0", despite=(Reason("damp"),)))
    assert [(event.reason, event.note) for event in recorded.events[1:]] == told


def test_a_victim_that_is_on_no_node_has_no_event_of_preemption(twin: Twin) -> None:
    recorded, made = Recorded(), Engine(SchedulerSettings(), kinds=KINDS)
    loop = Loop(twin.client(), made, recorder=cast(EventRecorder, recorded))
    info, victim = (made.classes.info(pod(name)) for name in ("p", "held"))
    loop._record(AttemptOutcome(Result.UNSCHEDULABLE, info, victims=(victim,)))
    assert [event.reason for event in recorded.events] == ["FailedScheduling"]


def test_a_bind_of_another_scheduler_that_is_not_waited_for_any_more_holds_nothing(twin: Twin) -> None:
    """A member of a gang waits for the others at bind; its request times out, and later both are bound together."""
    keys = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    members = [
        pod(name, {"cpu": "1"}, uid="", schedulerName="default-scheduler", annotations=keys) for name in ("a", "b")
    ]
    twin.load(NODES, [document(node("n0"))])
    twin.load(PODS, [document(each) for each in members])
    asked = [
        BindingArgs(name=key.name, namespace=key.namespace, uid=item["metadata"]["uid"], node="n0")
        for key, item in twin.objects(PODS).items()
        if key.name in ("a", "b")
    ]
    settings = SchedulerSettings(extender_scheduler_names=("default-scheduler",))
    with running_loop(twin, Engine(settings, kinds={**KINDS, "coscheduling": Coscheduling})) as loop:
        with pytest.raises(TimeoutError):
            loop.bind_for_extender(asked[0], 0.2)
        wait_for(lambda: not loop.call(lambda: [*loop.engine.waiting(), *loop.engine.snapshot.pods]))
        assert not any(nodes_of(twin).values())
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda each: loop.bind_for_extender(each, 30.0).result, asked))
    assert found == [Result.SCHEDULED] * 2
    assert nodes_of(twin) == {"a": "n0", "b": "n0"}
