"""Run-queue wait for each cgroup: how long, why, and who ran meanwhile.

Columns of the dense table: on-CPU time, involuntary switches, the wait as sum, count and log2 histogram, and the
wait split by cause (`api.metrics.WAIT_CAUSES`, which sum to the wait). Table `cpu.blame` holds nanoseconds of each
victim's contended wait (neighbour and kernel) while each culprit ran.
"""

import time
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from api.histogram import SLOTS
from api.metrics import WAIT_CAUSES
from probes.libbpf import BpfObject, possible_cpus
from probes.pairs import PairLedger
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object, sum_per_cpu

RING = 64

U64 = np.dtype(np.uint64)
CGROUP_RECORD = np.dtype(
    [
        ("oncpu_ns", U64),
        ("involuntary", U64),
        ("wait_ns", U64),
        ("wait_count", U64),
        ("causes_ns", U64, (len(WAIT_CAUSES),)),
        ("hist", U64, (SLOTS,)),
    ]
)
PAIR_RECORD = np.dtype([("victim", U64), ("culprit", U64)])
SLICE_RECORD = np.dtype([("end_ns", U64), ("who", U64)])
STATE_RECORD = np.dtype(
    [("since_ns", U64), ("who", U64), ("cgroup", U64), ("pid", U64), ("head", U64), ("ring", SLICE_RECORD, (RING,))]
)
LOST_PLACES = ("cpu.task", "cpu.cgroup", "cpu.blame_ns", "cpu.switch")
"""Tasks without storage, cgroups that did not fit, blame that did not fit, switches that BPF was not shown."""


class Cpu(BpfProbe):
    """Needs tp_btf and task storage (kernel 5.12 and later)."""

    name: ClassVar[str] = "cpu"
    records: ClassVar = {
        "cpu_cgroup": CGROUP_RECORD,
        "cpu_pair": PAIR_RECORD,
        "cpu_state": STATE_RECORD,
        "slice": SLICE_RECORD,
    }

    def __init__(self, bpf: BpfObject) -> None:
        super().__init__(bpf)
        self._cgroups = bpf.map("cgroups", U64, CGROUP_RECORD)
        self._blame = bpf.map("blame", PAIR_RECORD, U64)
        self._cpus = bpf.map("cpus", np.dtype(np.uint32), STATE_RECORD)
        self._lost = bpf.map("lost", np.dtype(np.uint32), U64)
        self._pairs = PairLedger()
        self._oncpu_floor: dict[int, int] = {}

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Cpu":
        """Load, stamp every living task's storage, attach."""
        kernel.require_tracepoints(
            "sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task", "task_newtask"
        )
        bpf = open_object(cls.image(), kernel)
        bpf.resize("cpus", possible_cpus())
        bpf.resize("cgroups", limits.max_cgroups)
        bpf.resize("blame", limits.max_pairs)
        load(bpf)
        attach(bpf, "on_new_task")
        bpf.iterate("prepare_tasks")
        attach(bpf, "on_wakeup", "on_wakeup_new", "on_migrate", "on_switch")
        return cls(bpf)

    def read(self) -> Reading:
        ids, values = self._cgroups.read()
        ids = ids.copy()
        columns = sum_per_cpu(values, CGROUP_RECORD)
        causes = columns.pop("causes_ns")
        dense: dict[str, NDArray[Any]] = {
            "cpu.oncpu_ns": self._with_running(ids, columns["oncpu_ns"]),
            "cpu.involuntary_switches": columns["involuntary"],
            "cpu.wait_ns": columns["wait_ns"],
            "cpu.wait_count": columns["wait_count"],
            "cpu.wait_hist": columns["hist"],
        }
        dense |= {f"cpu.wait_{cause}_ns": causes[:, row] for row, cause in enumerate(WAIT_CAUSES)}
        self._drain()
        _, lost = self._lost.read()
        return Reading(
            {CGROUP: Table({"cgroup": ids}, dense), "cpu.blame": self._pairs.table("cpu.blame_ns")},
            dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True)),
        )

    def _drain(self) -> None:
        keys, blamed = self._blame.read(drain=True)
        self._pairs.add(keys["victim"], keys["culprit"], blamed.sum(axis=1))

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)
        self._drain()
        self._pairs.forget(ids)
        for gone in ids.tolist():
            self._oncpu_floor.pop(gone, None)

    def _with_running(self, ids: NDArray[np.uint64], oncpu_ns: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Add the slices that still run; never report less than before (the two reads are not one moment)."""
        _, states = self._cpus.read()
        now = time.monotonic_ns()
        row_of = {identity: row for row, identity in enumerate(ids.tolist())}
        total = oncpu_ns.copy()
        for since, who, cgroup in zip(
            states["since_ns"].tolist(), states["who"].tolist(), states["cgroup"].tolist(), strict=True
        ):
            row = row_of.get(cgroup)
            if who and since and row is not None:
                total[row] += max(now - since, 0)
                floor = self._oncpu_floor.get(cgroup, 0)
                self._oncpu_floor[cgroup] = max(floor, int(total[row]))
        for cgroup, floor in self._oncpu_floor.items():
            row = row_of.get(cgroup)
            if row is not None and total[row] < floor:
                total[row] = floor
        return total
