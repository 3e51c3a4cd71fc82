"""Run-queue wait of each cgroup: duration, cause, and the cgroups that ran meanwhile.

Columns of the dense table: on-CPU time, involuntary switches, the wait as sum, count and log2 histogram, and the
wait split by cause (`api.metrics.WAIT_CAUSES`, which sum to the wait). Table `cpu.blame` holds nanoseconds of each
victim's contended wait (neighbour and kernel) while each culprit ran.

A wait counts as it grows from its first half second on: a read begins with a pass over the threads that are queued,
which charges what they have waited until then (not from BCC, where a wait counts at its end). A pass takes 16 us on
two busy CPUs; none is made while all CPUs are idle at times. Before Linux 6.2 a pass is over all threads of the
machine: 0.2 ms and 0.6 us a thread (1.5 ms for 2143), and where some CPU is never idle, up to a hundredth of the time
of one.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from api.histogram import SLOTS
from api.metrics import WAIT_CAUSES
from probes.bpf_object import LoadedBpf
from probes.libbpf import possible_cpus
from probes.pairs import PairLedger
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object, sum_per_cpu
from probes.shared_maps import share
from probes.tripwire import TRIP_RECORD, WATCHED_RECORD, Tripwire

RING = 64
EPOCHS = 32
EPOCH_SHARES = 6

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
SLICE_RECORD = np.dtype([("end_ns", U64), ("identity", U64)])
SHARE_RECORD = np.dtype([("ns", U64), ("identity", U64)])
EPOCH_RECORD = np.dtype([("start_ns", U64), ("end_ns", U64), ("shares", SHARE_RECORD, (EPOCH_SHARES,))])
EPOCHS_RECORD = np.dtype([("newest", U64), ("ring", EPOCH_RECORD, (EPOCHS,))])
STATE_RECORD = np.dtype(
    [
        ("since_ns", U64),
        ("identity", U64),
        ("cgroup", U64),
        ("pid", U64),
        ("head", U64),
        ("owed_cgroup", U64),
        ("owed_oncpu_ns", U64),
        ("owed_involuntary", U64),
        ("ring", SLICE_RECORD, (RING,)),
        ("epochs", EPOCHS_RECORD),
    ]
)
LOST_PLACES = ("cpu.task", "cpu.cgroup", "cpu.blame_ns", "cpu.switch")
"""Tasks without storage, cgroups that did not fit, blame that did not fit, switches that BPF was not shown."""


PREPARE_EVERY_READS = 10


class TaskStorage:
    """Storage of threads that have none, because memory was short when they were made or no program ran then.

    Such a thread is counted as lost each time it waits, for its whole life. One pass over all threads gives it storage.
    """

    def __init__(self, prepare: Callable[[], Any]) -> None:
        self._prepare = prepare
        self._missed = 0
        self._reads = 0

    def follow(self, missed: int) -> None:
        """Take the count of waits without storage with each read; prepare all threads where it grew, but seldom."""
        self._reads += 1
        if missed == self._missed or self._reads < PREPARE_EVERY_READS:
            return
        self._missed, self._reads = missed, 0
        with contextlib.suppress(OSError):  # the count goes on, and it is tried again
            self._prepare()


IDLE_ID = 0
LATELY_NS = 200_000_000
LEAST_PASS_SECONDS = 0.5
MOST_OF_TIME = 1 / 100
"""Where a pass looks at all threads, 25,000 of them allow one each 1.5 s: what is starved is told within three."""
JUDGED_PASSES = 5
"""Of so many passes the shortest tells what one takes: CPUs are crowded, others may have run during a longer one."""


class WaitsUnderWay:
    """Passes over queued threads that charge what long waits have grown to.

    With each read, but seldom where a pass takes long, and none while every CPU is idle at times: no thread waits long
    there, but for its quota.
    """

    def __init__(self, charge: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._charge = charge
        self._clock = clock
        self._due = 0.0
        self._took: deque[float] = deque(maxlen=JUDGED_PASSES)
        self._crowded = False

    def notice(self, states: NDArray[Any], now_ns: int) -> None:
        """Take the state of the CPUs: is there one that was not idle lately, as far as its last slices tell?"""
        slices = states["ring"]
        was_idle = ((slices["identity"] == IDLE_ID) & (slices["end_ns"] + np.uint64(LATELY_NS) > now_ns)).any(axis=1)
        self._crowded = bool(((states["since_ns"] > 0) & (states["identity"] != IDLE_ID) & ~was_idle).any())

    def follow(self) -> None:
        """Make a pass if one is due."""
        begun = self._clock()
        if not self._crowded or begun < self._due:
            return
        with contextlib.suppress(OSError):  # the waits count at their end, or with the next pass
            self._charge()
        ended = self._clock()
        self._took.append(ended - begun)
        takes = min(self._took) if len(self._took) == JUDGED_PASSES else 0.0
        self._due = ended + max(LEAST_PASS_SECONDS, takes / MOST_OF_TIME)


class Cpu(BpfProbe):
    """Needs tp_btf, task storage, and per-CPU arrays read in batches (kernel 5.13 and later)."""

    name: ClassVar[str] = "cpu"
    options: ClassVar = {"tripwire": False}
    records: ClassVar = {
        "watched": WATCHED_RECORD,
        "trip": TRIP_RECORD,
        "cpu_cgroup": CGROUP_RECORD,
        "cpu_pair": PAIR_RECORD,
        "cpu_state": STATE_RECORD,
        "slice": SLICE_RECORD,
        "share": SHARE_RECORD,
        "epoch": EPOCH_RECORD,
        "run_epochs": EPOCHS_RECORD,
    }

    def __init__(self, bpf: LoadedBpf) -> None:
        super().__init__(bpf)
        self._cgroups = bpf.map("cgroups", U64, CGROUP_RECORD)
        self._blame = bpf.map("blame", PAIR_RECORD, U64)
        self._cpus = bpf.map("cpus", np.dtype(np.uint32), STATE_RECORD)
        self._lost = bpf.map("lost", np.dtype(np.uint32), U64)
        self.pairs: PairLedger = PairLedger()
        self._floors: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None
        self._storage: TaskStorage | None = None
        self._under_way: WaitsUnderWay | None = None
        self.tripwire: Tripwire | None = None
        """Reports at once cgroups that lose more than their budget; with option `tripwire` only."""

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Cpu":
        """Load, stamp every living task's storage, attach."""
        tripwire = limits.option("cpu", "tripwire", False)
        kernel.require_tracepoints(
            "sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task", "task_newtask"
        )
        bpf = open_object(cls.image(), kernel)
        queues_by_cpu = kernel.btf.field_type("task_group", "cfs_rq") == "struct cfs_rq * *"
        bpf.set_rodata({"queues_by_cpu": queues_by_cpu, "tripwire": tripwire})
        finds_tasks = kernel.btf.has_function("bpf_task_from_pid")
        bpf.without("charge_tasks" if finds_tasks else "charge_queue")
        bpf.resize("cpus", possible_cpus())
        share(bpf, limits.shards, by_cgroup={"cgroups": limits.max_cgroups}, blame=limits.max_pairs)
        load(bpf)
        attach(bpf, "on_new_task")
        bpf.iterate("prepare_tasks")
        attach(bpf, "on_wakeup", "on_wakeup_new", "on_migrate", "on_switch")
        probe = cls(bpf)
        probe._storage = TaskStorage(partial(bpf.iterate, "prepare_tasks"))
        probe._under_way = WaitsUnderWay(
            partial(bpf.iterate, "charge_queue", "cpus") if finds_tasks else partial(bpf.iterate, "charge_tasks")
        )
        if tripwire:
            probe.tripwire = Tripwire(bpf)
        return probe

    def close(self) -> None:
        if self.tripwire is not None:
            self.tripwire.close()
        super().close()

    def read(self) -> Reading:
        if self._under_way is not None:
            self._under_way.follow()
        ids, values = self._cgroups.read()
        ids = ids.copy()
        columns = sum_per_cpu(values, CGROUP_RECORD)
        self._add_owed(ids, columns)
        causes = columns["causes_ns"]
        dense: dict[str, NDArray[Any]] = {
            "cpu.oncpu_ns": columns["oncpu_ns"],
            "cpu.involuntary_switches": columns["involuntary"],
            "cpu.wait_ns": columns["wait_ns"],
            "cpu.wait_count": columns["wait_count"],
            "cpu.wait_hist": columns["hist"],
        }
        dense |= {f"cpu.wait_{cause}_ns": causes[:, row] for row, cause in enumerate(WAIT_CAUSES)}
        self._drain()
        _, places = self._lost.read()
        lost = dict(zip(LOST_PLACES, places.sum(axis=1).tolist(), strict=True))
        if self._storage is not None:
            self._storage.follow(lost["cpu.task"])
        return Reading({CGROUP: Table({"cgroup": ids}, dense), "cpu.blame": self.pairs.table("cpu.blame_ns")}, lost)

    def _drain(self) -> None:
        keys, blamed = self._blame.read(drain=True)
        self.pairs.add(keys["victim"], keys["culprit"], blamed.sum(axis=1))

    def reserve(self, ids: NDArray[np.uint64]) -> int:
        return self._cgroups.reserve(ids)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)
        self._drain()
        self.pairs.forget(ids)

    def _add_owed(self, ids: NDArray[np.uint64], columns: dict[str, NDArray[np.uint64]]) -> None:
        """Add on-CPU time that the CPUs still hold back, and the slices that still run.

        Two maps cannot be read at one moment, so no total is reported below what it was before.
        """
        _, states = self._cpus.read()
        now_ns = time.monotonic_ns()
        if self._under_way is not None:
            self._under_way.notice(states, now_ns)
        now = np.uint64(now_ns)
        running = (states["since_ns"] > 0) & (states["identity"] > 0) & (states["since_ns"] < now)
        slices_ns = np.where(running, now - states["since_ns"], np.uint64(0))
        order = np.argsort(ids)
        for owner, amounts, column in (
            (states["owed_cgroup"], states["owed_oncpu_ns"], "oncpu_ns"),
            (states["cgroup"], slices_ns, "oncpu_ns"),
            (states["owed_cgroup"], states["owed_involuntary"], "involuntary"),
        ):
            position = np.minimum(np.searchsorted(ids, owner, sorter=order), max(len(ids) - 1, 0))
            rows = order[position] if len(ids) else order
            found = ids[rows] == owner if len(ids) else np.zeros(0, dtype=np.bool_)
            np.add.at(columns[column], rows[found], amounts[found])
        reported = np.stack([columns["oncpu_ns"], columns["involuntary"]])
        if self._floors is not None:
            known, floors = self._floors
            position = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
            found = known[position] == ids if len(known) else np.zeros(len(ids), dtype=np.bool_)
            reported[:, found] = np.maximum(reported[:, found], floors[:, position[found]])
        columns["oncpu_ns"], columns["involuntary"] = reported
        self._floors = ids[order], reported[:, order]
