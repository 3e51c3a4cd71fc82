"""Throttle episodes of each cgroup's own quota: count, duration and distribution.

The kernel throttles each CPU's queue of a cgroup by itself, so one episode is one CPU's queue held back, and
`throttle.throttled_ns` is the sum over CPUs, as in the kernel's own cpu.stat: a cgroup that runs on two CPUs can be
throttled for two seconds a second. An episode counts when it ends (traced functions) or when the queue next runs
something (read at context switch); queues without a task that waits are not held back and count nothing.

Where functions cannot be traced, an episode whose tasks all left the CPU merges with the next one there, and a quota
that held a queue together with an ancestor's is credited with no more than its own account gained.

Cost by the kernel's BPF statistics under `perf bench sched pipe` with nothing throttled: 58 to 65 ns a switch where
functions cannot be traced (an empty program shows 58), else nothing but at the episodes themselves.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from api.histogram import SLOTS
from api.plugin import Unsupported
from probes.bpf_object import BpfObject
from probes.libbpf import possible_cpus
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object, sum_per_cpu
from probes.shared_maps import share

U64 = np.dtype(np.uint64)
CGROUP_RECORD = np.dtype(
    [
        ("throttled_ns", U64),
        ("episodes", U64),
        ("seen_self_ns", U64),
        ("seen_own_ns", U64),
        ("hist", U64, (SLOTS,)),
    ]
)
TRACED = ("before_unthrottle", "after_unthrottle")
SWITCHED = ("take_baseline", "on_switch")
_THROTTLED_AT_MOST = 512
"""Cgroups of the second way on a machine of many CPUs: it keeps each CPU's clock, so its map stays per CPU."""


class Throttle(BpfProbe):
    """Needs fentry on unthrottle_cfs_rq, or the queues' own throttle clock (from 6.5 to before 7.x)."""

    name: ClassVar[str] = "throttle"
    records: ClassVar = {"throttle_cgroup": CGROUP_RECORD}

    def __init__(self, bpf: BpfObject, way: str) -> None:
        super().__init__(bpf)
        self.way = way
        """Source of the episodes: `traced` or `switched`."""
        self._cgroups = bpf.map("cgroups", U64, CGROUP_RECORD)
        self._lost = bpf.map("lost", np.dtype(np.uint32), U64)

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Throttle":
        """Trace the kernel's function; where that is refused, read the queues' clocks at each switch."""
        if not kernel.btf.has_field("cfs_rq", "throttled_clock"):
            raise Unsupported("the kernel has no CFS bandwidth control", "use one with CONFIG_CFS_BANDWIDTH")
        try:
            return cls(cls._open_traced(kernel, limits), "traced")
        except Unsupported as refusal:
            if not has_queue_clock(kernel):
                raise
            kernel.refusals["fentry"] = str(refusal)
        return cls(cls._open_switched(kernel, limits), "switched")

    @classmethod
    def _open_traced(cls, kernel: Kernel, limits: ProbeLimits) -> BpfObject:
        if not kernel.btf.has_function("unthrottle_cfs_rq"):
            raise Unsupported("the kernel's BTF has no function unthrottle_cfs_rq")
        bpf = open_object(cls.image(), kernel)
        bpf.without(*SWITCHED)
        share(bpf, limits.shards, by_cgroup={"cgroups": limits.max_cgroups})
        load(bpf)
        attach(bpf, *TRACED)
        return bpf

    @classmethod
    def _open_switched(cls, kernel: Kernel, limits: ProbeLimits) -> BpfObject:
        bpf = open_object(cls.image(), kernel)
        bpf.without(*TRACED)
        bpf.resize("cgroups", min(limits.max_cgroups, _THROTTLED_AT_MOST) if limits.shards else limits.max_cgroups)
        bpf.set_rodata({"cpu_count": possible_cpus()})
        load(bpf)
        bpf.iterate("take_baseline")
        attach(bpf, "on_switch")
        return bpf

    def read(self) -> Reading:
        ids, values = self._cgroups.read()
        ids = ids.copy()
        columns = sum_per_cpu(values, CGROUP_RECORD)
        dense: dict[str, NDArray[Any]] = {
            f"throttle.{field}": columns[field] for field in ("throttled_ns", "episodes", "hist")
        }
        _, lost = self._lost.read()
        return Reading({CGROUP: Table({"cgroup": ids}, dense)}, {"throttle.cgroup": int(lost.sum())})

    def reserve(self, ids: NDArray[np.uint64]) -> int:
        return self._cgroups.reserve(ids)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)


def has_queue_clock(kernel: Kernel) -> bool:
    """Return whether queues keep a throttle clock (6.5) and groups an array of their queues (7.x has them per CPU)."""
    has_clock = kernel.btf.has_field("cfs_rq", "throttled_clock_self_time")
    return has_clock and kernel.btf.field_type("task_group", "cfs_rq") == "struct cfs_rq * *"
