"""Kernel counters of the bench's own cgroups, read without the product: the peers' input and the proof of harm.

Counters in seconds or bytes as they grow; a file that this kernel lacks is left out.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cgroups import TestCgroup

USAGE = "usage"
"""CPU seconds used."""
WAIT = "wait"
"""Seconds that living threads stood in a run queue, by the scheduler's own count (schedstat)."""
THROTTLED = "throttled"
"""Seconds throttled by the cgroup's own quota, summed over CPUs."""
MEMORY_BYTES = "memory_bytes"
"""Memory charged; a gauge."""
IO_BYTES = "io_bytes"
"""Block IO by the io controller."""
STALLED_CPU, STALLED_MEMORY, STALLED_IO = "stalled_cpu", "stalled_memory", "stalled_io"
"""PSI `some` seconds."""
QUEUED_BYTES = "queued_bytes"
"""Backlog of a send queue; a gauge."""
REFAULTS = "refaults"
"""Pages read again soon after they were evicted."""
GAUGES = frozenset({MEMORY_BYTES, QUEUED_BYTES})


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: wall-clock seconds, and the counters of each role."""

    time: float
    roles: Mapping[str, Mapping[str, float]]


class Meter:
    """Samples cgroups, and whatever a scenario adds for a role."""

    def __init__(self) -> None:
        self._cgroups: dict[str, TestCgroup] = {}
        self._extra: dict[tuple[str, str], Callable[[], float]] = {}

    def watch(self, role: str, cgroup: TestCgroup) -> None:
        """Sample this cgroup from now on."""
        self._cgroups[role] = cgroup

    def add(self, role: str, measure: str, read: Callable[[], float]) -> None:
        """Sample one more counter of a role."""
        self._extra[role, measure] = read

    def forget(self, role: str) -> None:
        """The cgroup is about to go."""
        self._cgroups.pop(role, None)

    def sample(self) -> Sample:
        """Take a sample now."""
        now = time.time()
        roles = {role: measure(cgroup) for role, cgroup in self._cgroups.items()}
        for (role, name), read in self._extra.items():
            roles.setdefault(role, {})[name] = read()
        return Sample(now, roles)


def measure(cgroup: TestCgroup) -> dict[str, float]:
    """All counters of one cgroup."""
    found = {WAIT: _wait_seconds(cgroup)}
    if cgroup.tree.version == "v2":
        stat = _pairs(cgroup.cpu_dir / "cpu.stat")
        found[USAGE], found[THROTTLED] = stat.get("usage_usec", 0) / 1e6, stat.get("throttled_usec", 0) / 1e6
        found[MEMORY_BYTES] = _number(cgroup.memory_dir / "memory.current")
        found[IO_BYTES] = _v2_io_bytes(cgroup.blkio_dir / "io.stat")
    else:
        found[USAGE] = _number(cgroup.dir_of("cpuacct") / "cpuacct.usage") / 1e9
        found[THROTTLED] = _pairs(cgroup.cpu_dir / "cpu.stat").get("throttled_time", 0) / 1e9
        found[MEMORY_BYTES] = _number(cgroup.memory_dir / "memory.usage_in_bytes")
        served = _pairs(cgroup.blkio_dir / "blkio.throttle.io_service_bytes_recursive")
        found[IO_BYTES] = served.get("Total", 0)
    if cgroup.unified_dir is not None:
        for resource, name in (("cpu", STALLED_CPU), ("memory", STALLED_MEMORY), ("io", STALLED_IO)):
            found[name] = _stalled_seconds(cgroup.unified_dir / f"{resource}.pressure")
    return found


def refaults(memory_stat: Path) -> float:
    """Refaults of one cgroup so far, by the memory controller."""
    return sum(value for key, value in _pairs(memory_stat).items() if key.startswith("workingset_refault"))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _number(path: Path) -> float:
    return float(_text(path) or 0)


def _pairs(path: Path) -> dict[str, float]:
    lines = [line.split() for line in _text(path).splitlines()]
    return {words[0]: float(words[1]) for words in lines if len(words) == 2}


def _v2_io_bytes(path: Path) -> float:
    words = [word.partition("=") for word in _text(path).split()]
    return sum(float(value) for key, _, value in words if key in ("rbytes", "wbytes"))


def _stalled_seconds(path: Path) -> float:
    for line in _text(path).splitlines():
        if line.startswith("some"):
            return float(line.rpartition("total=")[2]) / 1e6
    return 0.0


def _wait_seconds(cgroup: TestCgroup) -> float:
    total = 0.0
    for pid in cgroup.pids():
        for thread in _names(Path(f"/proc/{pid}/task")):
            words = _text(Path(f"/proc/{pid}/task/{thread}/schedstat")).split()
            total += float(words[1]) / 1e9 if len(words) > 1 else 0.0
    return total


def busy_seconds() -> float:
    """Time in which a CPU of the host was not idle so far, summed over CPUs."""
    words = [float(word) for word in _text(Path("/proc/stat")).splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = words
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def stolen_seconds() -> float:
    """Time so far in which a hypervisor did not run CPUs of the host that had work, summed over CPUs."""
    return float(_text(Path("/proc/stat")).splitlines()[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def interrupt_seconds(cpu: int) -> float:
    """Time of one CPU in soft interrupts so far, by the kernel's ticks."""
    for line in _text(Path("/proc/stat")).splitlines():
        words = line.split()
        if words[0] == f"cpu{cpu}":
            return float(words[7]) / os.sysconf("SC_CLK_TCK")
    return 0.0
