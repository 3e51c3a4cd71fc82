"""How long threads stay on a CPU at a stretch, by the kernel's own trace of context switches.

One stretch is from the switch to a thread to the switch from it: what another thread of that CPU may have to wait.
"""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.tracepoints import tracefs

BUFFER_KB = 16_384
"""For each CPU. A switch takes less than a hundred bytes."""

_NEW_TASK = re.compile(r": task_newtask: pid=(\d+) .*clone_flags=([0-9a-f]+) ")
_CLONE_THREAD = 0x10000
_SWITCH = re.compile(r"\[(\d+)\]\s+\S+\s+([0-9.]+): sched_switch: .*prev_pid=(\d+) .*next_pid=(\d+) ")


class Bursts:
    """A trace of the switches of some threads and of those that they start, as for each request of a server, in a
    buffer of its own; a context manager that removes it."""

    def __init__(self, threads: Sequence[int]) -> None:
        self._threads = frozenset(threads)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Raises OSError or CalledProcessError where tracefs can be neither found nor mounted."""
        with ExitStack() as stack:
            self._instance = stack.enter_context(tracefs()) / "instances" / f"koord-bench-{os.getpid()}"
            self._instance.mkdir()
            stack.callback(self._instance.rmdir)
            self._trace()
            self._stack = stack.pop_all()
        return self

    def _trace(self) -> None:
        (self._instance / "buffer_size_kb").write_text(str(BUFFER_KB))
        (self._instance / "trace_clock").write_text("mono")
        (self._instance / "options/event-fork").write_text("1")
        (self._instance / "set_event_pid").write_text(" ".join(map(str, sorted(self._threads))))
        for event in ("sched/sched_switch", "task/task_newtask"):
            (self._instance / "events" / event / "enable").write_text("1")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def seconds(self) -> list[float]:
        """Return the stretches so far, of all threads."""
        return stretches((self._instance / "trace").read_text(errors="replace"), self._threads)


def stretches(trace: str, threads: frozenset[int]) -> list[float]:
    """Return the seconds of each stretch of these threads, and of those that they start, in a trace of events."""
    since: dict[str, tuple[int, float]] = {}
    own, found = set(threads), []
    for line in trace.splitlines():
        started = _NEW_TASK.search(line)
        if started is not None and int(started[2], 16) & _CLONE_THREAD:
            own.add(int(started[1]))
        event = _SWITCH.search(line)
        if event is None:
            continue
        cpu, at, before, after = event[1], float(event[2]), int(event[3]), int(event[4])
        thread, began = since.pop(cpu, (0, 0.0))
        if before in own and before == thread:
            found.append(at - began)
        if after in own:
            since[cpu] = after, at
    return found
