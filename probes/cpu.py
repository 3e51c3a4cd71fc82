"""Run-queue wait of each cgroup: duration, cause, and the cgroups that ran meanwhile.

Columns of the dense table: on-CPU time as the scheduler counts it (without what a hypervisor stole and, on kernels that
keep them apart, interrupts) and by the clock, involuntary switches, the wait as sum, count and log2 histogram, and the
wait split by cause (`api.metrics.WAIT_CAUSES`, which sum to the wait). Table `cpu.blame` holds nanoseconds of each
victim's contended wait (neighbour and kernel) while each culprit ran.

A wait counts as it grows from its first half second on: a read begins with a pass over the threads that are queued,
which charges what they have waited until then (not from BCC, where a wait counts at its end). A pass takes 16 us on
two busy CPUs; none is made while all CPUs are idle at times. Before Linux 6.2, and where the kernel refuses iterators
over maps, a pass is over all threads of the machine: 0.2 ms and 0.6 us a thread (1.5 ms for 2143), and where some CPU
is never idle, up to a hundredth of the time of one.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from api.histogram import SLOTS
from api.metrics import WAIT_CAUSES
from api.plugin import Unsupported
from probes.bpf_object import BpfObject, LoadedBpf
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
        ("held_ns", U64),
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
        ("owed_held_ns", U64),
        ("owed_involuntary", U64),
        ("sum_exec_ns", U64),
        ("ahead_ns", U64),
        ("synced_ns", U64),
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


CHARGES = {"charge_queue": "cpus", "charge_tasks": ""}
"""Iterators that charge waits under way, and the map that each passes over; one is loaded."""
LONG_SLICE_NS = 10_000_000
"""The scheduler's count of a running thread is up to a tick old: of shorter slices it says no more than the clock."""
LEAST_LOST = 0.005
"""Part of the time of ended slices; less is not looked for in slices that run."""
IDLE_ID = 0
LATELY_NS = 200_000_000
LEAST_PASS_SECONDS = 0.4
"""Less than half a second, after which a tick may come on which a verdict depends."""
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

    def notice(self, states: NDArray[Any], now_ns: NDArray[np.uint64]) -> None:
        """Take the state of the CPUs, and now by the clock of each one's slices: is there one that was not idle
        lately, as far as its last slices tell?"""
        slices = states["ring"]
        ended_lately = slices["end_ns"] + np.uint64(LATELY_NS) > now_ns[:, np.newaxis]
        was_idle = ((slices["identity"] == IDLE_ID) & ended_lately).any(axis=1)
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


class RunningSlices:
    """How long slices that still run have run by the scheduler's count, which leaves out what the clock has in it: time
    that a hypervisor stole and, on kernels that keep it apart, time in interrupts.

    A slice's thread is asked in /proc only where the slice is long and where slices that ended lost time.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._ended = (0, 0)
        self.loses = True
        """Whether slices that ended since the last read lost time; until some have, they may."""

    def notice(self, oncpu_ns: int, held_ns: int) -> None:
        """Take what all slices that have ended ran, by the scheduler's count and by the clock."""
        ran, held = oncpu_ns - self._ended[0], held_ns - self._ended[1]
        self._ended = (oncpu_ns, held_ns)
        if held > 0:  # else only cgroups went
            self.loses = held - ran > LEAST_LOST * held

    def ran(self, states: NDArray[Any], held_ns: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the run time of each CPU's slice in ns, as `held_ns` by the clock; 0 where none runs."""
        ran_ns = held_ns.copy()
        if not self.loses:
            return ran_ns
        for cpu in np.flatnonzero(held_ns > LONG_SLICE_NS).tolist():
            spent_ns = self._spent_ns(int(states["pid"][cpu]))
            counted = spent_ns - int(states["sum_exec_ns"][cpu])
            if 0 <= counted < int(held_ns[cpu]):  # else the clock tells
                ran_ns[cpu] = counted
        return ran_ns

    def _spent_ns(self, thread: int) -> int:
        """Run time of a thread since it began; -1 where it has exited, or the kernel keeps no such file."""
        try:
            return int((self._proc / str(thread) / "schedstat").read_bytes().split()[0])
        except (OSError, IndexError):
            return -1


class Cpu(BpfProbe):
    """Needs tp_btf, task storage, per-CPU arrays read in batches (kernel 5.13 and later), and CONFIG_SCHED_INFO."""

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
        self._running = RunningSlices()
        self._floors: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None
        self._storage: TaskStorage | None = None
        self._under_way: WaitsUnderWay | None = None
        self.tripwire: Tripwire | None = None
        """Reports at once cgroups that lose more than their budget; with option `tripwire` only."""

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Cpu":
        """Load, stamp every living task's storage, attach."""
        kernel.require_tracepoints(
            "sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task", "task_newtask"
        )
        if not kernel.btf.has_field("sched_info", "last_queued"):
            raise Unsupported(
                "the scheduler does not note when it queues a thread (CONFIG_SCHED_INFO)",
                'set [probes] backend = "bcc"',
            )
        charge = "charge_queue" if kernel.btf.has_function("bpf_task_from_pid") else "charge_tasks"
        try:
            bpf = cls._load(kernel, limits, charge)
        except Unsupported:
            if charge == "charge_tasks":
                raise
            charge = "charge_tasks"  # some hosts refuse iterators over maps
            bpf = cls._load(kernel, limits, charge)
        attach(bpf, "on_new_task")
        bpf.iterate("prepare_tasks")
        attach(bpf, "on_wakeup", "on_wakeup_new", "on_migrate", "on_switch")
        probe = cls(bpf)
        probe._storage = TaskStorage(partial(bpf.iterate, "prepare_tasks"))
        probe._under_way = WaitsUnderWay(partial(bpf.iterate, charge, CHARGES[charge]))
        if limits.option("cpu", "tripwire", False):
            probe.tripwire = Tripwire(bpf)
        return probe

    @classmethod
    def _load(cls, kernel: Kernel, limits: ProbeLimits, charge: str) -> BpfObject:
        bpf = open_object(cls.image(), kernel)
        queues_by_cpu = kernel.btf.field_type("task_group", "cfs_rq") == "struct cfs_rq * *"
        bpf.set_rodata({"queues_by_cpu": queues_by_cpu, "tripwire": limits.option("cpu", "tripwire", False)})
        bpf.without(*(CHARGES.keys() - {charge}))
        bpf.resize("cpus", possible_cpus())
        share(bpf, limits.shards, by_cgroup={"cgroups": limits.max_cgroups}, blame=limits.max_pairs)
        load(bpf)
        return bpf

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
            "cpu.held_ns": columns["held_ns"],
            "cpu.involuntary_switches": columns["involuntary"],
            "cpu.wait_ns": columns["wait_ns"],
            "cpu.wait_count": columns["wait_count"],
            "cpu.wait_hist": columns["hist"],
        }
        dense |= {f"cpu.wait_{cause}_ns": causes[:, row] for row, cause in enumerate(WAIT_CAUSES)}
        keys, blamed = self._blame.read(drain=True)
        self.pairs.add(keys["victim"], keys["culprit"], blamed.sum(axis=1))
        _, places = self._lost.read()
        lost = dict(zip(LOST_PLACES, places.sum(axis=1).tolist(), strict=True))
        if self._storage is not None:
            self._storage.follow(lost["cpu.task"])
        return Reading({CGROUP: Table({"cgroup": ids}, dense), "cpu.blame": self.pairs.table("cpu.blame_ns")}, lost)

    def reserve(self, ids: NDArray[np.uint64]) -> int:
        return self._cgroups.reserve(ids)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)
        self.pairs.forget(ids)

    def _add_owed(self, ids: NDArray[np.uint64], columns: dict[str, NDArray[np.uint64]]) -> None:
        """Add on-CPU time that the CPUs still hold back, and the slices that still run.

        Two maps cannot be read at one moment, so no total is reported below what it was before.
        """
        self._running.notice(int(columns["oncpu_ns"].sum()), int(columns["held_ns"].sum()))
        _, states = self._cpus.read()
        now = np.uint64(time.monotonic_ns()) - states["ahead_ns"]
        if self._under_way is not None:
            self._under_way.notice(states, now)
        running = (states["since_ns"] > 0) & (states["identity"] > 0) & (states["since_ns"] < now)
        held_ns = np.where(running, now - states["since_ns"], np.uint64(0))
        ran_ns = self._running.ran(states, held_ns)
        order = np.argsort(ids)
        names = ("oncpu_ns", "held_ns", "involuntary")
        for owner, amounts, column in (
            (states["owed_cgroup"], states["owed_oncpu_ns"], "oncpu_ns"),
            (states["cgroup"], ran_ns, "oncpu_ns"),
            (states["owed_cgroup"], states["owed_held_ns"], "held_ns"),
            (states["cgroup"], held_ns, "held_ns"),
            (states["owed_cgroup"], states["owed_involuntary"], "involuntary"),
        ):
            position = np.minimum(np.searchsorted(ids, owner, sorter=order), max(len(ids) - 1, 0))
            rows = order[position] if len(ids) else order
            found = ids[rows] == owner if len(ids) else np.zeros(0, dtype=np.bool_)
            np.add.at(columns[column], rows[found], amounts[found])
        reported = np.stack([columns[name] for name in names])
        if self._floors is not None:
            known, floors = self._floors
            position = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
            found = known[position] == ids if len(known) else np.zeros(len(ids), dtype=np.bool_)
            reported[:, found] = np.maximum(reported[:, found], floors[:, position[found]])
        columns.update(zip(names, reported, strict=True))
        self._floors = ids[order], reported[:, order]
