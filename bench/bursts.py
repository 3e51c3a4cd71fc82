"""How long threads stay on a CPU at a stretch, by the kernel's own trace of context switches.

One stretch is from the switch to a thread to the switch from it: what another thread of that CPU may have to wait.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

TRACING = Path("/sys/kernel/tracing")
BUFFER_KB = 16_384
"""For each CPU. A switch takes less than a hundred bytes."""

_SWITCH = re.compile(r"\[(\d+)\]\s+\S+\s+([0-9.]+): sched_switch: .*prev_pid=(\d+) .*next_pid=(\d+) ")


class Bursts:
    """A trace of the switches of some threads, in a buffer of its own; a context manager that removes it."""

    def __init__(self, threads: Sequence[int]) -> None:
        """Raises OSError where tracefs is not mounted."""
        self._threads = frozenset(threads)
        self._instance = TRACING / "instances" / f"koord-bench-{os.getpid()}"

    def __enter__(self) -> Self:
        self._instance.mkdir()
        event = self._instance / "events/sched/sched_switch"
        (self._instance / "buffer_size_kb").write_text(str(BUFFER_KB))
        (self._instance / "trace_clock").write_text("mono")
        either = "||".join(f"prev_pid=={each}||next_pid=={each}" for each in sorted(self._threads))
        (event / "filter").write_text(either)
        (event / "enable").write_text("1")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._instance.rmdir()

    def seconds(self) -> list[float]:
        """Return the stretches so far, of all threads."""
        return stretches((self._instance / "trace").read_text(errors="replace"), self._threads)


def stretches(trace: str, threads: frozenset[int]) -> list[float]:
    """Return the seconds of each stretch in a trace of sched_switch events."""
    since: dict[str, tuple[int, float]] = {}
    found = []
    for line in trace.splitlines():
        event = _SWITCH.search(line)
        if event is None:
            continue
        cpu, at, before, after = event[1], float(event[2]), int(event[3]), int(event[4])
        thread, began = since.pop(cpu, (0, 0.0))
        if before in threads and before == thread:
            found.append(at - began)
        if after in threads:
            since[cpu] = after, at
    return found
