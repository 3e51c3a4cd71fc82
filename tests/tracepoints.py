"""What a task hit of tracepoints by the kernel's own count, and when by its record: the truth for what a probe says."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from probes.perf_event import perf_event_open

PERF_TYPE_TRACEPOINT = 2
TRACEFS = Path("/sys/kernel/tracing")


@contextmanager
def tracefs() -> Iterator[Path]:
    """Yield the mount point of tracefs; where it is not mounted, a temporary one."""
    if (TRACEFS / "events").is_dir():
        yield TRACEFS
        return
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "tracefs", "none", directory], check=True)
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", directory], check=True)


@dataclass(frozen=True, slots=True)
class TracepointCounter:
    """Counts one tracepoint in the context of one task, from its making until `close`."""

    fd: int

    @classmethod
    def of(cls, event: str, pid: int) -> Self:
        """Count `system/name` for one task."""
        with tracefs() as root:
            number = int((root / "events" / event / "id").read_text())
        return cls(perf_event_open(PERF_TYPE_TRACEPOINT, number, pid=pid))

    def read(self) -> int:
        """Hits so far."""
        return int.from_bytes(os.read(self.fd, 24)[:8], "little")

    def close(self) -> None:
        os.close(self.fd)


_RECORD = re.compile(r"\s(\d+)\.(\d{6}): (\w+): ")


@contextmanager
def recorded(pid: int, function: str, *events: str) -> Iterator[Callable[[], list[tuple[str, int]]]]:
    """Record when a task is in a kernel function and hits tracepoints ("system/name"), by the kernel's own tracer.

    What is yielded returns names ("entry" and "return" of the function) and CLOCK_MONOTONIC in ns, to the microsecond,
    in order. Raises OSError where the host lets no function be traced.
    """
    group = f"koord_test_{os.getpid()}"
    places = {"entry": "p", "return": "r"}
    with tracefs() as root:
        try:
            for name, kind in places.items():
                _append(root / "kprobe_events", f"{kind}:{group}/{name} {function}")
            instance = root / "instances" / group
            instance.mkdir()
            try:
                (instance / "trace_clock").write_text("mono")
                (instance / "set_event_pid").write_text(str(pid))
                for event in (*(f"{group}/{name}" for name in places), *events):
                    (instance / "events" / event / "enable").write_text("1")
                yield lambda: _records((instance / "trace").read_text())
            finally:
                instance.rmdir()
        finally:
            _append(root / "kprobe_events", f"-:{group}/")


def _append(path: Path, line: str) -> None:
    """Write by `O_APPEND` alone: to be written from the beginning clears the file, and it cannot seek to its end."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


def _records(trace: str) -> list[tuple[str, int]]:
    found = (_RECORD.search(line) for line in trace.splitlines() if not line.startswith("#"))
    return [(match[3], int(match[1]) * 1_000_000_000 + int(match[2]) * 1000) for match in found if match]
