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


_RECORD = re.compile(r"\[(\d+)\] \S+ +(\d+)\.(\d{6}): (\w+): ")
_BUFFER_KIB = 16 << 10


@dataclass(frozen=True, slots=True)
class Record:
    """One hit of a tracepoint: on which CPU, and CLOCK_MONOTONIC, to the microsecond."""

    cpu: int
    name: str
    at_ns: int


@contextmanager
def recorded_on_host(*events: str) -> Iterator[Callable[[], list[Record]]]:
    """Record every hit of tracepoints ("system/name") by the kernel's own tracer; those that it lacks have none.

    What is yielded ends the record and returns it in order of time. Raises AssertionError where the buffer was full.
    """
    with tracefs() as root:
        instance = root / "instances" / f"koord_test_{os.getpid()}"
        instance.mkdir()
        try:
            (instance / "trace_clock").write_text("mono")
            (instance / "buffer_size_kb").write_text(str(_BUFFER_KIB))
            for switch in (instance / "events" / event / "enable" for event in events):
                if switch.exists():
                    switch.write_text("1")
            yield lambda: _all_records(instance)
        finally:
            instance.rmdir()


def _all_records(instance: Path) -> list[Record]:
    (instance / "tracing_on").write_text("0")
    for stats in instance.glob("per_cpu/cpu*/stats"):
        assert "overrun: 0\n" in stats.read_text()
    return _records((instance / "trace").read_text())


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
                yield lambda: [(hit.name, hit.at_ns) for hit in _records((instance / "trace").read_text())]
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


def _records(trace: str) -> list[Record]:
    found = (_RECORD.search(line) for line in trace.splitlines() if not line.startswith("#"))
    return [Record(int(m[1]), m[4], int(m[2]) * 1_000_000_000 + int(m[3]) * 1000) for m in found if m]
