"""The loop against the in-process API server: pods get bound, once, whatever goes wrong."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager

import msgspec
import pytest

from api.kube.objects import Node, Pod
from cluster import NODES, PODS, Key, merge_patch
from cluster.twin import Twin
from cluster.twin.faults import Fault, FaultType
from scheduler.engine import Engine
from scheduler.framework import Action
from scheduler.loop import Loop
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.profile import SchedulerSettings
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
