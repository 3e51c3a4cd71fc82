"""Run-queue wait from a program compiled on the node: the columns of `probes.cpu`, without the two quota causes.

Run queues and quotas are private to the scheduler: header packages do not hold them. The wait of every cgroup that a
quota can hold back is of unknown cause, and `Kernel.refusals` says why. These cgroups are looked up in the cgroup tree
(`quotas.under_quota`, 16 ms for 700 cgroups) by each read that finds a new cgroup, and by one in five others. Until
then, wait for a quota is counted as contention or idle: one tick for a new cgroup, five for a new quota.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from api.frame import CGROUP, Reading, Table
from probes import cpu
from probes.bcc import loader
from probes.bcc.quotas import under_quota
from probes.cgroups import cpu_mount
from probes.libbpf import BpfError, possible_cpus
from probes.probe import Kernel, ProbeLimits

MAX_WAITERS = 32768
MARK_EVERY_READS = 5
PROGRAMS: Mapping[str, str] = {
    "on_wakeup": "sched_wakeup",
    "on_wakeup_new": "sched_wakeup_new",
    "on_migrate": "sched_migrate_task",
    "on_switch": "sched_switch",
}
UNMEASURED = ("cpu.wait_own_quota_ns", "cpu.wait_ancestor_quota_ns")
WHY_UNMEASURED = "header packages do not describe run queues; the wait of cgroups under a quota is of unknown cause"


class BccCpu(cpu.Cpu):
    """Needs raw tracepoints, and sched_switch with its usual arguments (not those of 5.18)."""

    def __init__(self, bpf: loader.BccObject, mount: Path) -> None:
        super().__init__(bpf)
        self._mount = mount
        self._under_quota = bpf.map("under_quota", cpu.U64, cpu.U64)
        self._marked: frozenset[int] = frozenset()
        self._unmarked = 0
        self._seen: frozenset[int] = frozenset()
        self._reads_since_marking = 0
        self._mark_quotas()

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "BccCpu":
        """Compile, mark the cgroups under a quota, attach."""
        mount = cpu_mount(Path("/proc/self/mounts").read_text())
        constants = {
            "NUM_LOST_PLACES": len(cpu.LOST_PLACES),
            "CPUS": possible_cpus(),
            "MAX_WAITERS": MAX_WAITERS,
            "MAX_CGROUPS": limits.max_cgroups,
            "MAX_PAIRS": limits.max_pairs,
        }
        maps = ("cgroups", "blame", "cpus", "lost", "under_quota")
        bpf = loader.load(loader.Source("cpu", PROGRAMS, maps, constants))
        opened = cls(bpf, mount)
        loader.attach(bpf, *PROGRAMS)
        kernel.refusals |= dict.fromkeys(UNMEASURED, WHY_UNMEASURED)
        return opened

    def read(self) -> Reading:
        reading = super().read()
        table = reading.tables[CGROUP]
        self._mark_quotas_when_due(frozenset(table.ids.tolist()))
        measured = {name: column for name, column in table.columns.items() if name not in UNMEASURED}
        return Reading(
            {**reading.tables, CGROUP: Table(table.keys, measured)}, {**reading.lost, "cpu.under_quota": self._unmarked}
        )

    def _mark_quotas_when_due(self, ids: frozenset[int]) -> None:
        self._reads_since_marking += 1
        if self._reads_since_marking >= MARK_EVERY_READS or not ids <= self._seen:
            self._mark_quotas()
            self._seen, self._reads_since_marking = ids, 0

    def _mark_quotas(self) -> None:
        """Follow quotas that came and went; a cgroup that does not fit into the map is counted as lost."""
        limited = under_quota(self._mount)
        self._under_quota.delete(np.array(sorted(self._marked - limited), dtype=np.uint64))
        marked = set(self._marked & limited)
        for cgroup in limited - self._marked:
            try:
                self._under_quota.update(cgroup, np.ones((), dtype=np.uint64))
                marked.add(cgroup)
            except BpfError:
                self._unmarked += 1
        self._marked = frozenset(marked)
