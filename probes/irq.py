"""Seconds lost to interrupts on top of the cgroup that was interrupted.

Dense columns `cpu.irq_ns` (handlers of hard interrupts, and the local timer's) and `cpu.softirq_ns` add up: a hard
interrupt inside a soft one counts once. Table `irq.vector` has the host's totals by vector, and how much of each came
on top of a cgroup's task; the rest came on top of idle or kernel threads and is no cgroup's loss. Inter-processor
interrupts and the entry and exit paths around handlers are not seen.

A soft interrupt that a task's own system call raised (a send over loopback, say) runs in that task and cannot be told
from one that serves another cgroup: it counts as loss of the cgroup that made it. With a real-time kernel soft
interrupts run in threads of their own and can be switched out; their figures are then wall time, not CPU time.

Cost by the kernel's BPF statistics under `redis-benchmark -t get -n 40000`: 98 ns at entry, 159 ns at
exit of a soft interrupt.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from probes.bpf_object import BpfObject
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object, sum_per_cpu
from probes.shared_maps import share

VECTORS = (
    "hi",
    "timer",
    "net_tx",
    "net_rx",
    "block",
    "irq_poll",
    "tasklet",
    "sched",
    "hrtimer",
    "rcu",
    "hard",
    "local_timer",
)
"""Soft interrupts in the order of include/linux/interrupt.h, then hard interrupts and the x86 timer's."""

U64 = np.dtype(np.uint64)
CGROUP_RECORD = np.dtype([("hard_ns", U64), ("soft_ns", U64)])
VECTOR_RECORD = np.dtype([("ns", U64), ("count", U64), ("stolen_ns", U64)])
CPU_RECORD = np.dtype([("hard_since_ns", U64), ("soft_since_ns", U64), ("hard_inside_ns", U64)])

_TIMER = ("local_timer_entry", "local_timer_exit")


class Irq(BpfProbe):
    """Needs the tracepoints of the interrupt core, which every kernel has."""

    name: ClassVar[str] = "irq"
    records: ClassVar = {"irq_cgroup": CGROUP_RECORD, "irq_vector": VECTOR_RECORD, "irq_cpu": CPU_RECORD}

    def __init__(self, bpf: BpfObject) -> None:
        super().__init__(bpf)
        self._cgroups = bpf.map("cgroups", U64, CGROUP_RECORD)
        self._vectors = bpf.map("vectors", np.dtype(np.uint32), VECTOR_RECORD)
        self._lost = bpf.map("lost", np.dtype(np.uint32), U64)

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Irq":
        """Load and attach; the timer's tracepoints only where the kernel has them (x86)."""
        kernel.require_tracepoints("irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit")
        has_timer = all(kernel.btf.has_tracepoint(name) for name in _TIMER)
        timer = ("on_timer_exit", "on_timer_entry")
        bpf = open_object(cls.image(), kernel)
        share(bpf, limits.shards, by_cgroup={"cgroups": limits.max_cgroups})
        if not has_timer:
            bpf.without(*timer)
        load(bpf)
        attach(bpf, "on_irq_exit", "on_softirq_exit", "on_irq_entry", "on_softirq_entry")
        if has_timer:
            attach(bpf, *timer)
        return cls(bpf)

    def read(self) -> Reading:
        ids, values = self._cgroups.read()
        ids = ids.copy()
        columns = sum_per_cpu(values, CGROUP_RECORD)
        dense: dict[str, NDArray[Any]] = {
            "cpu.irq_ns": columns["hard_ns"],
            "cpu.softirq_ns": columns["soft_ns"],
        }
        _, lost = self._lost.read()
        return Reading(
            {CGROUP: Table({"cgroup": ids}, dense), "irq.vector": self._by_vector()},
            {"irq.cgroup": int(lost.sum())},
        )

    def _by_vector(self) -> Table:
        keys, values = self._vectors.read()
        columns = {f"irq.vector_{field}": column for field, column in sum_per_cpu(values, VECTOR_RECORD).items()}
        return Table({"vector": np.array(VECTORS)[keys]}, columns)

    def reserve(self, ids: NDArray[np.uint64]) -> int:
        return self._cgroups.reserve(ids)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)
