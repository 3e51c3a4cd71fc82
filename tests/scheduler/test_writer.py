"""Bindings that are in doubt while the lead passes to another process; the order of writes about one pod."""

import queue
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from cluster import NODES, PODS, Client, Key
from cluster.resources import strategic_patch
from cluster.twin import UNLIMITED, Fault, FaultType, Twin
from scheduler.engine import Engine
from scheduler.framework import Action, Verb, Write
from scheduler.outcome import BindingPlan
from scheduler.profile import SchedulerSettings
from scheduler.writer import BindAnswer, WriteFailure, Writer
from tests.schedobjects import BASE, node, pod
from tests.waiting import wait_for

POD = Key("default", "p")


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as made:
        made.load(NODES, [msgspec.to_builtins(node("n0"))])
        made.load(PODS, [msgspec.to_builtins(pod("p"))])
        yield made


def plan(uid: str) -> BindingPlan:
    made = Engine(SchedulerSettings(), kinds=dict(BASE))
    made.on_node(Action.ADD, node("n0"), 0.0)
    made.on_pod(Action.ADD, pod("p", uid=uid), 0.0)
    made.schedule_one(0.0)
    return made.bindings.popleft()


def answer_of(twin: Twin, fault: Fault | None, leads: Callable[[], bool], *, quick: bool = False) -> BindAnswer:
    """The answer to a binding that meets a fault; the lead is lost at the fault. A quick one waits in no thread."""
    answers: queue.SimpleQueue[BindAnswer | WriteFailure] = queue.SimpleQueue()
    with Client(twin.endpoint(), UNLIMITED, may_write=leads) as client:
        writer = Writer(client, 1, answers.put, allowed=leads)
        if quick:
            wait_for(writer._quick.has_room)
        if fault is not None:
            twin.faults.add(fault)
        writer.bind(plan(twin.objects(PODS)[POD]["metadata"]["uid"]))
        assert writer.uncollected is quick
        answer = awaited(writer, answers)
        writer.stop()
    assert isinstance(answer, BindAnswer)
    return answer


def awaited(writer: Writer, answers: "queue.SimpleQueue[BindAnswer | WriteFailure]") -> BindAnswer | WriteFailure:
    def come() -> bool:
        writer.collect(0.01)
        return not answers.empty()

    wait_for(come, 30.0)
    return answers.get_nowait()


def until_struck(twin: Twin) -> Callable[[], bool]:
    return lambda: not twin.faults.struck


def node_of(twin: Twin) -> Any:
    return twin.objects(PODS)[POD]["spec"].get("nodeName", "")


@pytest.mark.parametrize("quick", [False, True])
def test_a_binding_is_written_once(twin: Twin, quick: bool) -> None:
    assert answer_of(twin, None, lambda: True, quick=quick).error == ""
    assert (node_of(twin), bindings_asked(twin)) == ("n0", 1)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultType.ERROR, frozenset({"bind"}), times=1, status=503),
        Fault(FaultType.ERROR, frozenset({"bind"}), times=1, status=429, seconds=0.1),
        Fault(FaultType.DROP, frozenset({"bind"}), times=1),
        Fault(FaultType.DROP, frozenset({"bind"}), times=1, after=True),
    ],
    ids=["error", "shed", "lost", "answer-lost"],
)
@pytest.mark.parametrize("quick", [False, True])
def test_a_binding_that_failed_once_is_asked_again(twin: Twin, fault: Fault, quick: bool) -> None:
    assert answer_of(twin, fault, lambda: True, quick=quick).error == ""
    assert (node_of(twin), bindings_asked(twin)) == ("n0", 2)


@pytest.mark.parametrize("quick", [False, True])
def test_a_pod_that_was_replaced_is_not_bound(twin: Twin, quick: bool) -> None:
    answers: queue.SimpleQueue[BindAnswer | WriteFailure] = queue.SimpleQueue()
    with Client(twin.endpoint(), UNLIMITED) as client:
        writer = Writer(client, 1, answers.put)
        if quick:
            wait_for(writer._quick.has_room)
        writer.bind(plan("another"))
        answer = awaited(writer, answers)
        writer.stop()
    assert isinstance(answer, BindAnswer)
    assert answer.error == "the pod is replaced"
    assert node_of(twin) == ""


def test_writes_about_a_pod_wait_for_its_quick_binding(twin: Twin) -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Late"}
    late = Write(Verb.PATCH_STATUS, PODS, POD, strategic_patch({"status": {"conditions": [said]}}))
    answers: queue.SimpleQueue[BindAnswer | WriteFailure] = queue.SimpleQueue()
    with Client(twin.endpoint(), UNLIMITED) as client:
        writer = Writer(client, 2, answers.put)
        wait_for(writer._quick.has_room)
        twin.faults.add(Fault(FaultType.DELAY, frozenset({"bind"}), times=1, seconds=0.3))
        writer.bind(plan(twin.objects(PODS)[POD]["metadata"]["uid"]))
        writer.write([late])
        assert not any(verb == "patch" for verb, _ in twin.requests)
        awaited(writer, answers)
        writer.stop()
    [shown] = [each for each in twin.objects(PODS)[POD]["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert shown["reason"] == "Late"


@pytest.mark.parametrize("quick", [False, True])
def test_a_binding_that_was_lost_is_not_asked_for_again_by_one_who_leads_no_more(twin: Twin, quick: bool) -> None:
    fault = Fault(FaultType.DROP, frozenset({"bind"}), times=1)
    answer = answer_of(twin, fault, until_struck(twin), quick=quick)
    assert answer.error == "another process leads"
    assert node_of(twin) == ""
    assert bindings_asked(twin) == 1


@pytest.mark.parametrize("quick", [False, True])
def test_a_binding_whose_answer_was_lost_is_read_back_by_one_who_leads_no_more(twin: Twin, quick: bool) -> None:
    fault = Fault(FaultType.DROP, frozenset({"bind"}), times=1, after=True)
    answer = answer_of(twin, fault, until_struck(twin), quick=quick)
    assert answer.error == ""
    assert node_of(twin) == "n0"
    assert bindings_asked(twin) == 1


def bindings_asked(twin: Twin) -> int:
    return sum(count for (verb, _), count in twin.requests.items() if verb == "bind")


def test_a_late_unschedulable_does_not_follow_the_binding(twin: Twin) -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    refusal = Write(Verb.PATCH_STATUS, PODS, POD, strategic_patch({"status": {"conditions": [said]}}))
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"patch"}), times=1, status=429, seconds=1.0))
    answers: queue.SimpleQueue[BindAnswer | WriteFailure] = queue.SimpleQueue()
    with Client(twin.endpoint(), UNLIMITED) as client:
        writer = Writer(client, 2, answers.put)
        writer.write([refusal])
        writer.bind(plan(twin.objects(PODS)[POD]["metadata"]["uid"]))
        answer = awaited(writer, answers)
        writer.stop()
    assert isinstance(answer, BindAnswer)
    assert answer.error == ""
    [shown] = twin.objects(PODS)[POD]["status"]["conditions"]
    assert (shown["type"], shown["status"]) == ("PodScheduled", "True")
