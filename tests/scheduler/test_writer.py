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


def answer_of(twin: Twin, fault: Fault, leads: Callable[[], bool]) -> BindAnswer:
    """The answer to a binding that meets a fault; the lead is lost at the fault."""
    answers: queue.SimpleQueue[BindAnswer | WriteFailure] = queue.SimpleQueue()
    twin.faults.add(fault)
    with Client(twin.endpoint(), UNLIMITED, may_write=leads) as client:
        writer = Writer(client, 1, answers.put, allowed=leads)
        writer.bind(plan(twin.objects(PODS)[POD]["metadata"]["uid"]))
        answer = answers.get(timeout=30)
        writer.stop()
    assert isinstance(answer, BindAnswer)
    return answer


def until_struck(twin: Twin) -> Callable[[], bool]:
    return lambda: not twin.faults.struck


def node_of(twin: Twin) -> Any:
    return twin.objects(PODS)[POD]["spec"].get("nodeName", "")


def test_a_binding_that_was_lost_is_not_asked_for_again_by_one_who_leads_no_more(twin: Twin) -> None:
    answer = answer_of(twin, Fault(FaultType.DROP, frozenset({"bind"}), times=1), until_struck(twin))
    assert answer.error == "another process leads"
    assert node_of(twin) == ""
    assert sum(count for (verb, _), count in twin.requests.items() if verb == "bind") == 1


def test_a_binding_whose_answer_was_lost_is_read_back_by_one_who_leads_no_more(twin: Twin) -> None:
    answer = answer_of(twin, Fault(FaultType.DROP, frozenset({"bind"}), times=1, after=True), until_struck(twin))
    assert answer.error == ""
    assert node_of(twin) == "n0"
    assert sum(count for (verb, _), count in twin.requests.items() if verb == "bind") == 1


def test_a_late_unschedulable_does_not_follow_the_binding(twin: Twin) -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    refusal = Write(Verb.PATCH_STATUS, PODS, POD, strategic_patch({"status": {"conditions": [said]}}))
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"patch"}), times=1, status=429, seconds=1.0))
    answers: queue.SimpleQueue[BindAnswer | WriteFailure] = queue.SimpleQueue()
    with Client(twin.endpoint(), UNLIMITED) as client:
        writer = Writer(client, 2, answers.put)
        writer.write([refusal])
        writer.bind(plan(twin.objects(PODS)[POD]["metadata"]["uid"]))
        answer = answers.get(timeout=30)
        writer.stop()
    assert isinstance(answer, BindAnswer)
    assert answer.error == ""
    [shown] = twin.objects(PODS)[POD]["status"]["conditions"]
    assert (shown["type"], shown["status"]) == ("PodScheduled", "True")
