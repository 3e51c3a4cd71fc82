"""Stacks of a few cgroups for some seconds: what they run, and where the threads of victims wait.

No columns: `begin` and `end` enclose one measurement, and nothing is in the kernel before and after. What runs is
sampled by a clock of each CPU (`cpu-clock`, which needs no PMU); a wait gets the stack at which its thread left the
CPU. Waits are exact sums, but a CPU takes at most one stack a millisecond at switches: the others are summed without a
stack (`Sample.taken` is false). Stacks are found by frame pointers; code built without them shows its innermost
function alone.

By the kernel's BPF statistics a switch costs 415 ns while a measurement runs, stacks of redis with 20 clients included
(11,000 switches a second), and a tick of the clock 430 to 860 ns: 0.2 % of a CPU for two seconds.

A wait that began before the measurement and outlasts it is not seen here; the kernel tells where such a thread sleeps
(/proc/PID/task/TID/stack).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.cpuset import parse_cpuset
from api.frame import Reading
from api.plugin import Unsupported
from api.programs.heap import release_heap
from probes.bpf_map import Map
from probes.bpf_object import BpfObject
from probes.libbpf import BpfError
from probes.perf_event import open_cpu_clock
from probes.probe import Kernel, Probe, ProbeLimits, attach, image_of, load, open_object

U32, U64, S64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
KEY_RECORD = np.dtype([("cgroup", U64), ("tgid", U32), ("kind", U32), ("kernel", S64), ("user", S64)])
TOTAL_RECORD = np.dtype([("count", U64), ("ns", U64)])
WAIT_RECORD = np.dtype([("since_ns", U64), ("key", KEY_RECORD)])
FRAMES = 64
TRACE_RECORD = np.dtype([("frames", U64, (FRAMES,))])
LOST_PLACES = ("stacks.total", "stacks.wait")
MAX_CGROUPS = 256
HZ = 49
"""Not a divisor of anything that runs at round rates."""
NO_STACK = -14
"""EFAULT: a kernel thread has no stack in user space, a thread that only runs there has none in the kernel."""
NOT_TAKEN = -1000
ONLINE_CPUS = Path("/sys/devices/system/cpu/online")


class Role(IntFlag):
    """What is measured of a cgroup."""

    SAMPLED = 1
    WAITS_TOO = 3


class SampleKind(IntEnum):
    """State of a thread: sampled while it ran, or waiting since it was preempted, or since it went to sleep."""

    ON_CPU = 0
    PREEMPTED = 1
    BLOCKED = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """One stack of one process, innermost address first, and how often or how long it was seen."""

    cgroup: int
    tgid: int
    kind: SampleKind
    count: int
    ns: int
    kernel: tuple[int, ...]
    user: tuple[int, ...]
    taken: bool
    """False where no stack was taken, or no room was left for it."""


@dataclass(frozen=True, slots=True)
class Samples:
    """All of one measurement."""

    seconds: float
    stacks: tuple[Sample, ...]
    seen_tids: frozenset[int]
    """Threads of victims that were switched in or out meanwhile."""
    lost: Mapping[str, int] = field(default_factory=dict)


class Stacks(Probe):
    """Needs tp_btf, and perf events with the software clock."""

    name: ClassVar[str] = "stacks"
    records: ClassVar = {"stacks_key": KEY_RECORD, "stacks_total": TOTAL_RECORD, "stacks_wait": WAIT_RECORD}

    def __init__(self) -> None:
        self._bpf: BpfObject | None = None
        self._begun_ns = 0
        self._lost = dict.fromkeys(LOST_PLACES, 0)

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Stacks":  # noqa: ARG003 - its maps need no size
        """Load once to see whether the kernel can serve, and unload."""
        kernel.require_tracepoints("sched_switch")
        open_object(image_of(cls.name), kernel).close()
        probe = cls()
        probe.begin({})
        probe.end()
        return probe

    def begin(self, roles: Mapping[int, Role]) -> None:
        """Start to measure these cgroups, at most `MAX_CGROUPS`. Raises Unsupported where the kernel refuses."""
        if self._bpf is not None:
            raise RuntimeError("a measurement is under way")
        bpf = BpfObject.open(image_of(self.name))
        load(bpf)
        wanted = bpf.map("roles", U64, U64)
        for identity, role in list(roles.items())[:MAX_CGROUPS]:
            wanted.update(identity, np.array(int(role), dtype=U64))
        try:
            for cpu in _online_cpus():
                bpf.attach_perf_event("on_clock", open_cpu_clock(cpu, HZ))
        except BpfError as error:
            bpf.close()
            raise Unsupported(
                f"perf events cannot be opened: {error.strerror}",
                "set kernel.perf_event_paranoid to 2 (Debian's 3 asks for CAP_SYS_ADMIN), or check kernel lockdown",
            ) from error
        if any(role == Role.WAITS_TOO for role in roles.values()) or not roles:
            attach(bpf, "on_switch")
        self._bpf, self._begun_ns = bpf, time.monotonic_ns()

    def tgids(self) -> frozenset[int]:
        """Processes seen so far; their maps should be read before they are gone."""
        if self._bpf is None:
            return frozenset()
        keys, _ = self._bpf.map("totals", KEY_RECORD, TOTAL_RECORD).read()
        return frozenset(keys["tgid"].tolist())

    def end(self) -> Samples:
        """Stop and return what was seen; waits that go on count up to now."""
        bpf, self._bpf = self._bpf, None
        if bpf is None:
            return Samples(0.0, (), frozenset())
        try:
            bpf.detach()
            now_ns = time.monotonic_ns()
            keys, totals = bpf.map("totals", KEY_RECORD, TOTAL_RECORD).read()
            tids, waits = bpf.map("waits", U32, WAIT_RECORD).read()
            keys, totals = with_open_waits(keys, totals, waits, now_ns)
            traces = _Traces(bpf.map("traces", U32, TRACE_RECORD))
            stacks = tuple(_sample(key, total, traces) for key, total in zip(keys, totals, strict=True))
            _, lost = bpf.map("lost", U32, U64).read()
            counted = dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True))
        finally:
            bpf.close()
            release_heap()
        for place, count in counted.items():
            self._lost[place] += count
        return Samples((now_ns - self._begun_ns) / 1e9, stacks, frozenset(tids.tolist()), counted)

    def read(self) -> Reading:
        """Only what was lost in measurements that have ended."""
        return Reading(lost=dict(self._lost))

    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        bpf, self._bpf = self._bpf, None
        if bpf is not None:
            bpf.close()


class _Traces:
    """Addresses of the stacks by their ids, each looked up once."""

    def __init__(self, traces: Map) -> None:
        self._traces = traces
        self._known: dict[int, tuple[int, ...]] = {}

    def __getitem__(self, stack: int) -> tuple[int, ...]:
        if stack < 0:
            return ()
        if stack not in self._known:
            found = self._traces.lookup(stack)
            frames = [] if found is None else found["frames"][0].tolist()
            self._known[stack] = tuple(frame for frame in frames if frame)
        return self._known[stack]


def with_open_waits(
    keys: NDArray[Any], totals: NDArray[Any], waits: NDArray[Any], now_ns: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Add waits that have not ended as rows of their own, with their time until now."""
    going_on = waits[(waits["since_ns"] > 0) & (waits["since_ns"] < now_ns)]
    more = np.zeros(len(going_on), dtype=TOTAL_RECORD)
    more["count"], more["ns"] = 1, np.uint64(now_ns) - going_on["since_ns"]
    return np.concatenate([keys, going_on["key"]]), np.concatenate([totals, more])


def _sample(key: Any, total: Any, traces: _Traces) -> Sample:
    ids = int(key["kernel"]), int(key["user"])
    return Sample(
        cgroup=int(key["cgroup"]),
        tgid=int(key["tgid"]),
        kind=SampleKind(int(key["kind"])),
        count=int(total["count"]),
        ns=int(total["ns"]),
        kernel=traces[ids[0]],
        user=traces[ids[1]],
        taken=all(one >= 0 or one == NO_STACK for one in ids),
    )


def _online_cpus() -> list[int]:
    return sorted(parse_cpuset(ONLINE_CPUS.read_text()))
