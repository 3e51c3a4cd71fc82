"""A watch that comes back with thousands of changes, by a list or event by event: pods go on being placed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from cluster import NODES, PODS, DeltaType, Key, Resource, StoreDelta
from cluster.twin import Twin
from scheduler.engine import NODE, Engine
from scheduler.loop import Loop, Message
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.profile import SchedulerSettings
from scheduler.turns import Turns
from tests.schedobjects import in_a_thread, node, pod
from tests.waiting import PATIENCE, wait_for

KINDS = {"prioritysort": PrioritySort, "noderesourcesfit": NodeResourcesFit, "defaultbinder": DefaultBinder}
OTHERS = 8000
"""Pods that another scheduler bound while the watch was cut."""
OURS = 200
NODES_COUNT = 100
LONGEST_SECONDS = 0.05
"""Longest step of the scheduling thread by its CPU time; what the clock says depends on other programs."""


class TimedTurns(Turns[Message]):
    """Notes the CPU time that messages take."""

    def __init__(self, loop: "TimedLoop") -> None:
        super().__init__(loop._inbox, loop._taken, loop._next_message)
        self._step = loop._step

    def messages(self, block_seconds: float) -> None:
        with self._step():
            super().messages(block_seconds)


class TimedLoop(Loop):
    """Notes the CPU time of each step of the thread, and attempts in the midst of a message."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.longest = 0.0
        """CPU seconds of the longest step."""
        self.largest = 0
        """Changes of the longest message."""
        self.between = 0
        """Attempts while a message was under way."""
        self._turns = TimedTurns(self)

    @contextmanager
    def _step(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.longest = max(self.longest, time.thread_time() - began)

    def _attempt(self) -> bool:
        with self._step():
            attempted = super()._attempt()
        self.between += attempted and self._turns._under_way is not None
        return attempted

    def _tick(self, now: float) -> None:
        with self._step():
            super()._tick(now)

    def _dispatch(self) -> None:
        with self._step():
            super()._dispatch()

    def _taken(self, message: Message) -> Iterator[None]:
        if isinstance(message, tuple):
            self.largest = max(self.largest, len(message[1]))
        return super()._taken(message)


class SlowLoop(Loop):
    """Has always a pod to place, which takes as long as in a large cluster, and changes that take their time."""

    ATTEMPT_SECONDS = 0.005
    CHANGE_SECONDS = 0.001

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.placing_seconds = 0.0
        self.longest_seconds = 0.0
        """Of an attempt."""
        self.draining_seconds = 0.0
        self.attempts = 0
        self.changes = 0

    def _attempt(self) -> bool:
        began = time.monotonic()
        time.sleep(self.ATTEMPT_SECONDS)
        took = time.monotonic() - began
        self.placing_seconds += took
        self.longest_seconds = max(self.longest_seconds, took)
        self.attempts += 1
        return True

    def _apply(self, kind: Resource[Any], delta: StoreDelta[Any]) -> None:
        began = time.monotonic()
        time.sleep(self.CHANGE_SECONDS)
        self.draining_seconds += time.monotonic() - began
        self.changes += 1

    def rounds_until(self, changes: int) -> None:
        """Run rounds until so many changes are in."""
        while self.changes < changes:
            self._round()


def document(item: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(item)
    made["metadata"].pop("uid", None)
    return made


@pytest.mark.parametrize("expired", [pytest.param(True, id="listed-again"), pytest.param(False, id="resumed")])
def test_pods_are_placed_while_thousands_of_changes_are_taken_in(expired: bool) -> None:
    room = {"cpu": "100", "memory": "100Gi", "pods": "1000"}
    with Twin() as twin:
        twin.load(NODES, [document(node(f"n{index}", allocatable=room)) for index in range(NODES_COUNT)])
        loop = TimedLoop(twin.client(), Engine(SchedulerSettings(), kinds=KINDS))
        with in_a_thread(loop):
            twin.stall_watches()
            ours = [document(pod(f"a{index}", {"cpu": "1m"})) for index in range(OURS)]
            others = (pod(f"b{index}", {"cpu": "1m"}, nodeName=f"n{index % NODES_COUNT}") for index in range(OTHERS))
            twin.load(PODS, [*ours, *map(document, others)])
            if expired:
                twin.compact()
            loop.longest = 0.0
            twin.drop_watches()
            wait_for(lambda: all(item["spec"].get("nodeName") for item in twin.objects(PODS).values()))
            wait_for(lambda: len(loop.engine.snapshot.pods) == OURS + OTHERS)
    assert (loop.largest >= OTHERS) is expired
    assert loop.between > 0 or not expired, "every attempt waited for the end of the list"
    assert loop.longest < LONGEST_SECONDS * PATIENCE


CHANGES = 400
STEPS = [
    pytest.param(CHANGES, 0.005, id="list"),
    pytest.param(1, 0.005, id="events"),
    pytest.param(CHANGES, 0.08, id="list-slow-attempts"),
]


@pytest.mark.parametrize(("together", "attempt_seconds"), STEPS)
def test_changes_have_at_least_the_time_that_attempts_take(
    together: int, attempt_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While changes wait, pods are placed on stale knowledge; still some are placed."""
    monkeypatch.setattr(SlowLoop, "ATTEMPT_SECONDS", attempt_seconds)
    seen = node("n")
    change = StoreDelta(DeltaType.UPDATED, Key("", "n"), seen, seen)
    with Twin() as twin:
        loop = SlowLoop(twin.client(), Engine(SchedulerSettings(), kinds=KINDS))
        for _ in range(CHANGES // together):
            loop._inbox.put((NODE, [change] * together))
        loop.rounds_until(CHANGES)
        loop._writer.stop()
    assert loop.attempts > 2
    # What the last round took is still owed at the end.
    assert loop.placing_seconds < 1.2 * loop.draining_seconds + 2 * loop.longest_seconds
