"""Order, back-off, events that wake, and events that come during an attempt."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.resources import NODES, Key
from scheduler.cluster_state.podinfo import PodClasses, PodInfo
from scheduler.framework import Action, ObjectEvent, Reason
from scheduler.podqueue import SWEEP_AT, PodQueue, QueueBackoff, QueueState
from tests.schedobjects import pod

CLASSES = PodClasses()
NODE_ADDED = ObjectEvent(NODES, Action.ADD, Key("", "n"), None, None)


@dataclass
class Gate:
    closed: set[str] = field(default_factory=set)

    def __call__(self, info: PodInfo) -> Reason | None:
        return Reason("closed", plugin="Gate") if info.pod.metadata.name in self.closed else None


def queue(gate: Gate | None = None, hint: Any = None) -> PodQueue:
    return PodQueue(
        sort_key=lambda info, queued_at: (-info.priority, queued_at),
        gate=gate or Gate(),
        hint=hint or (lambda *_: True),
        listeners={"nodes/add": frozenset({"Fit", "Gate"})},
        backoff=QueueBackoff(1.0, 10.0),
    )


def info(name: str, **fields: Any) -> PodInfo:
    return CLASSES.info(pod(name, **fields))


def popped(made: PodQueue, now: float) -> list[str]:
    names = []
    while (queued := made.pop(now)) is not None:
        names.append(queued.info.pod.metadata.name)
    return names


def reject(made: PodQueue, name: str, now: float, *plugins: str) -> None:
    made.requeue(info(name), now, rejected_by=frozenset(plugins), reason="no")


def test_priority_then_arrival() -> None:
    made = queue()
    made.add(info("late", priority=5), 2.0)
    made.add(info("early", priority=5), 1.0)
    made.add(info("vip", priority=9), 3.0)
    assert popped(made, 3.0) == ["vip", "early", "late"]


def test_a_removed_pod_does_not_come() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    made.remove("uid-a")
    assert popped(made, 0.0) == []
    made.add(info("a"), 1.0)
    assert popped(made, 1.0) == ["a"]


def test_a_rejected_pod_waits_for_an_event_then_sits_out_its_backoff() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    assert popped(made, 0.0) == ["a"]
    reject(made, "a", 0.0, "Fit")
    assert popped(made, 100.0) == []
    made.on_event(NODE_ADDED, 0.5)
    assert popped(made, 0.5) == []
    assert made.next_wake() == 1.0
    assert popped(made, 1.0) == ["a"]


@pytest.mark.parametrize(("attempts", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (60, 10)])
def test_backoff_doubles_to_its_limit(attempts: int, seconds: float) -> None:
    assert QueueBackoff(1.0, 10.0).seconds(attempts) == seconds


def test_an_event_after_the_backoff_wakes_at_once() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    popped(made, 0.0)
    reject(made, "a", 0.0, "Fit")
    made.on_event(NODE_ADDED, 5.0)
    assert popped(made, 5.0) == ["a"]


def test_events_wake_only_those_whom_they_concern() -> None:
    made = queue(hint=lambda _plugin, info, _event: info.pod.metadata.name == "b")
    for name in "abc":
        made.add(info(name), 0.0)
    popped(made, 0.0)
    reject(made, "a", 0.0, "Fit")
    reject(made, "b", 0.0, "Fit")
    reject(made, "c", 0.0, "Other")
    made.on_event(NODE_ADDED, 5.0)
    assert popped(made, 5.0) == ["b"]


def test_an_event_during_the_attempt_counts() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    popped(made, 0.0)
    made.on_event(NODE_ADDED, 0.1)
    reject(made, "a", 0.2, "Fit")
    queued = made.get("uid-a")
    assert queued is not None
    assert queued.state is QueueState.BACKOFF
    assert popped(made, 1.2) == ["a"]


def test_an_error_only_backs_off() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    popped(made, 0.0)
    reject(made, "a", 0.0)
    assert popped(made, 1.0) == ["a"]


def test_a_parked_pod_that_is_queued_again_leaves_nothing_behind() -> None:
    made = queue()
    made.add(info("p"), 0.0)
    made.pop(0.0)
    reject(made, "p", 0.0, "Fit")
    reject(made, "p", 0.0)
    assert made.parked_by_plugin() == {}
    made.remove("uid-p")
    made.on_event(NODE_ADDED, 1.0)
    assert made.pop(100.0) is None


def test_a_gate_holds_until_an_event_opens_it() -> None:
    gate = Gate({"a"})
    made = queue(gate)
    made.add(info("a"), 0.0)
    made.on_event(NODE_ADDED, 1.0)
    assert popped(made, 1.0) == []
    assert made.counts()["gated"] == 1
    gate.closed.clear()
    made.on_event(NODE_ADDED, 2.0)
    assert popped(made, 2.0) == ["a"]


def test_a_changed_pod_gets_another_chance() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    popped(made, 0.0)
    reject(made, "a", 0.0, "Fit")
    made.add(info("a"), 5.0)
    assert popped(made, 5.0) == []
    made.add(info("a", nodeSelector={"x": "y"}), 5.0)
    assert popped(made, 5.0) == ["a"]


def test_activate_skips_backoff_but_not_gates() -> None:
    gate = Gate({"b"})
    made = queue(gate)
    made.add(info("a"), 0.0)
    made.add(info("b"), 0.0)
    popped(made, 0.0)
    reject(made, "a", 0.0, "Fit")
    made.activate(["uid-a", "uid-b"], 0.1)
    assert popped(made, 0.1) == ["a"]


def test_a_pod_that_goes_first_does_so_among_its_equals_and_once() -> None:
    made = queue()
    made.add(info("high", priority=1), 0.0)
    made.add(info("early"), 0.0)
    made.add(info("late"), 1.0)
    made.activate_first(["uid-late"], 1.0)
    made.add(info("late", nodeSelector={"x": "y"}), 2.0)
    assert popped(made, 2.0) == ["high", "late", "early"]
    for name in ("late", "early"):
        reject(made, name, 2.0, "Fit")
    made.activate(["uid-early"], 3.0)
    made.activate(["uid-late"], 4.0)
    assert popped(made, 4.0) == ["early", "late"]


def test_a_pod_can_be_taken_out_of_turn_once() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    made.add(info("b"), 0.0)
    assert made.take("uid-b", 0.0) is not None
    assert made.take("uid-b", 0.0) is None
    assert popped(made, 0.0) == ["a"]


def test_what_no_event_speaks_for_is_tried_again_in_the_end() -> None:
    made = queue()
    made.add(info("a"), 0.0)
    popped(made, 0.0)
    reject(made, "a", 0.0, "Unlistened")
    made.flush_parked(299.0)
    assert popped(made, 299.0) == []
    made.flush_parked(300.0)
    assert popped(made, 300.0) == ["a"]


def test_events_are_kept_only_for_attempts_that_are_not_over() -> None:
    made = queue()
    made.on_event(NODE_ADDED, 0.0)
    assert len(made._events) == 0
    for name in ("a", "b"):
        made.add(info(name), 0.0)
        made.pop(0.0)
        made.on_event(NODE_ADDED, 0.0)
    assert len(made._events) == 2
    made.remove("uid-a")
    assert len(made._events) == 1
    reject(made, "b", 0.0, "Fit")
    assert len(made._events) == 0
    assert made.counts()["backoff"] == 1


def test_pods_that_come_and_go_untried_leave_nothing_behind() -> None:
    made = queue()
    made.add(info("stays"), 0.0)
    for number in range(4 * SWEEP_AT):
        made.add(info(f"p{number}"), 1.0)
        made.remove(f"uid-p{number}")
    assert len(made._active) <= SWEEP_AT + 4
    assert popped(made, 2.0) == ["stays"]


def test_what_brought_pods_into_each_queue_is_counted() -> None:
    made = queue(Gate({"held"}))
    made.add(info("a"), 0.0)
    made.add(info("held"), 0.0)
    assert popped(made, 0.0) == ["a"]
    reject(made, "a", 0.0, "Fit")
    made.on_event(NODE_ADDED, 0.5)
    assert popped(made, 2.0) == ["a"]
    reject(made, "a", 2.0)
    made.activate(["uid-a"], 2.0)
    assert made.incoming == {
        ("active", "PodAdd"): 1,
        ("gated", "PodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
        ("backoff", "nodes/add"): 1,
        ("gated", "nodes/add"): 1,
        ("active", "BackoffComplete"): 1,
        ("backoff", "ScheduleAttemptFailure"): 1,
        ("active", "ForceActivate"): 1,
    }
