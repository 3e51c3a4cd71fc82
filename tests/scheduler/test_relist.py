"""A watch that comes back with thousands of changes, by a list or event by event: pods go on being placed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from cluster import NODES, PODS
from cluster.twin import Twin
from scheduler.engine import Engine
from scheduler.loop import Loop, Message
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.profile import SchedulerSettings
from tests.schedobjects import in_a_thread, node, pod
from tests.waiting import PATIENCE, wait_for

KINDS = {"prioritysort": PrioritySort, "noderesourcesfit": NodeResourcesFit, "defaultbinder": DefaultBinder}
OTHERS = 8000
"""Pods that another scheduler bound while the watch was cut."""
OURS = 200
NODES_COUNT = 100
LONGEST_SECONDS = 0.05
"""Longest step of the scheduling thread by its CPU time; what the clock says depends on other programs."""


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

    @contextmanager
    def _step(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.longest = max(self.longest, time.thread_time() - began)

    def _attempt(self) -> bool:
        with self._step():
            attempted = super()._attempt()
        self.between += attempted and self._under_way is not None
        return attempted

    def _tick(self, now: float) -> None:
        with self._step():
            super()._tick(now)

    def _dispatch(self) -> None:
        with self._step():
            super()._dispatch()

    def _drain(self, *, block_seconds: float) -> None:
        with self._step():
            super()._drain(block_seconds=block_seconds)

    def _taken(self, message: Message) -> Iterator[None]:
        if isinstance(message, tuple):
            self.largest = max(self.largest, len(message[1]))
        return super()._taken(message)


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
