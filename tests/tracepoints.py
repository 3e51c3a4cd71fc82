"""The kernel's own count of a tracepoint's hits by one task: the independent truth for what a probe counts."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
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
