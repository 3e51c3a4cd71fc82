"""View: one tick as rates for symptoms, each column and blame table computed once."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import is_below
from api.frame import HOST, KERNEL_ID, OTHER_ID, CgroupInfo, Column, Frame, Table
from api.loss import lost_to_others_ns, total_lost_ns
from api.metrics import BY_COLUMN, KERNEL_WORK, MetricKind
from api.verdicts import KERNEL, OTHER, CgroupRef, group_ref
from api.window import Window, subtract
from detector.arrays import Floats
from detector.baselines.values import Judgement
from detector.blame import Blame, blame_between
from detector.cgroup_tree import CgroupTree
from detector.cpi2.sampler import Sampled
from detector.ring import positions

MadeT = TypeVar("MadeT")

NO_NAMES: Mapping[int, str] = {}
NO_REFS: Mapping[str, CgroupRef] = {}
CPU_BLAME = "cpu.blame"
LEAST_INTERRUPTED = 0.05
"""Part of a culprit's time on CPUs from which interrupts on top of it count; all have some for the timer."""
_WORK_COLUMNS = {f"kernelwork.{work}_ns": work for work in KERNEL_WORK}
_HELD = ("cpu.held_ns", "cpu.oncpu_ns")
"""Older recordings have the time by the clock under the latter name."""
_WAIT_KERNEL, _DEFERRED = "cpu.wait_kernel_ns", "net.softirq_deferred_ns"
_IOS, _HOST_IOS = "blockio.ios", "blockio.host_ios"
_IO_BYTES, _HOST_IO_BYTES = ("blockio.read_bytes", "blockio.write_bytes"), "blockio.host_bytes"
_BLOCK_DEVICES = "block_devices"
_BUSY, _STOLEN, _CPUS = "hostwide.busy_ns", "hostwide.steal_ns", "hostwide.cpus"
HOST_COLUMNS = frozenset((*_WORK_COLUMNS, _BUSY, _STOLEN, _CPUS, _HOST_IOS, _HOST_IO_BYTES))
"""Columns of the host's table that a view reads."""


def ref_of(info: CgroupInfo) -> CgroupRef:
    """Return the names of a cgroup as verdicts carry them."""
    return CgroupRef(info.name, info.namespace, info.pod, info.container, info.pod_uid, info.workload)


class View:
    """The newest `span_seconds` of a window as rates, with a row for each cgroup of the newest frame.

    Only `columns` are read. Raises ValueError with fewer than two frames or no time between them.
    """

    def __init__(
        self,
        window: Window,
        columns: Iterable[str],
        *,
        span_seconds: float = 1.0,
        gone: Mapping[int, str] = NO_NAMES,
        gone_refs: Mapping[str, CgroupRef] = NO_REFS,
        tree: CgroupTree | None = None,
        is_early: bool = False,
    ) -> None:
        recent = window.tail(span_seconds)
        if recent.seconds <= 0:
            raise ValueError("a view needs two frames with time between them")
        self.window = window
        self.cgroups: tuple[CgroupInfo, ...] = recent.cgroups
        self.ids = recent.last.cgroup.ids
        self.seconds = recent.seconds
        self.is_early = is_early
        """Whether it is of a tick that came amid an interval."""
        self.tree = tree or CgroupTree(recent.cgroups)
        self.judgements: Mapping[str, Judgement] = {}
        """Signals against their baselines, where there are any."""
        self.cpi2: Sampled | None = None
        """The last CPI2 sample, where the settings enable CPI2."""
        self._recent = recent
        self._gone = gone
        self._gone_refs = gone_refs
        last = _pick(recent.last.cgroup, frozenset(columns))
        self._columns = subtract(last, recent.frames[0].cgroup)[0].columns
        self._rates: dict[str, Floats] = {}
        self._blame: dict[str, Blame | None] = {}
        self._names: dict[int, str] | None = None
        self._made: dict[Callable[[View], Any], Any] = {}

    def has(self, *columns: str) -> bool:
        """Return whether all the columns are measured."""
        return all(column in self._columns for column in columns)

    def rate(self, column: str) -> Floats:
        """Growth per second in the base unit (nanoseconds become seconds per second); gauges as in the newest frame.

        Raises KeyError for a column that is not measured.
        """
        if column not in self._rates:
            metric = BY_COLUMN[column]
            whole = 1.0 if metric.kind is MetricKind.GAUGE else self.seconds
            self._rates[column] = self._columns[column].astype(np.float64) * (metric.unit.scale / whole)
        return self._rates[column]

    def counter(self, column: str) -> Column:
        """A column of the newest frame, unchanged. Raises KeyError where it is not measured."""
        return self._recent.last.cgroup.columns[column]

    def total(self, *columns: str) -> Floats | None:
        """Sum of the rates of those columns that are measured; None where none is."""
        present = [self.rate(column) for column in columns if column in self._columns]
        if len(present) < 2:
            return present[0] if present else None
        return np.asarray(np.sum(present, axis=0), dtype=np.float64)

    def lost_to_others(self, *causes: str) -> Floats | None:
        """Seconds per second that others cost a cgroup, by these causes of `api.loss`; None where none is measured."""
        ledger = {name: lost for name, lost in self._lost_to_others.items() if name in causes}
        return total_lost_ns(ledger) * (1e-9 / self.seconds) if ledger else None

    @cached_property
    def _lost_to_others(self) -> Mapping[str, Floats]:
        return lost_to_others_ns(self._columns)

    def expected(self, signal: str) -> Floats:
        """Usual value of a signal for each row; NaN where it is not known."""
        judged = self.judgements.get(signal)
        return np.full(len(self.ids), np.nan) if judged is None else judged.expected

    def sigmas(self, signal: str) -> Floats:
        """Distance of a signal above its usual value, in usual spreads; NaN where it is not known."""
        judged = self.judgements.get(signal)
        return np.full(len(self.ids), np.nan) if judged is None else judged.score

    def upper(self, signal: str) -> Floats:
        """Value of a signal that one ordinary tick in a hundred exceeds, for each row; NaN where it is not known."""
        judged = self.judgements.get(signal)
        return np.full(len(self.ids), np.nan) if judged is None else judged.upper

    def extreme(self, signal: str) -> Floats:
        """Value of a signal that one ordinary tick in a thousand exceeds, for each row; NaN where it is not known."""
        judged = self.judgements.get(signal)
        return np.full(len(self.ids), np.nan) if judged is None else judged.extreme

    def blame(self, table: str) -> Blame | None:
        """The blame table over the newest frames that carry it, without blame on a victim's own subtree.

        None with fewer than two such frames.
        """
        if table not in self._blame:
            self._blame[table] = self._find_blame(table)
        return self._blame[table]

    def by_others(self, table: str, lost: Floats) -> Floats:
        """Return a loss without the part that a victim's own subtree is to blame for."""
        if not self.tree.inner:
            return lost
        blame, rows = self.blame(table), np.array(sorted(self.tree.inner), dtype=np.int64)
        if blame is None:
            return lost
        left = lost.copy()
        left[rows] = np.minimum(lost[rows], blame.sums(self.ids[rows]))
        return left

    def once(self, make: Callable[["View"], MadeT]) -> MadeT:
        """Return what a function makes of this view, worked out once however many symptoms ask for it."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(MadeT, self._made[make])

    @cached_property
    def cpu_contention(self) -> Floats | None:
        """Waits for a CPU that another cgroup or the kernel held, in seconds per second; None where not measured."""
        lost = self.lost_to_others("cpu:neighbour", "cpu:kernel")
        if lost is None:
            return None
        if (own := self._own_kernel_work) is not None and self.has(_WAIT_KERNEL):
            lost = lost - own * self.rate(_WAIT_KERNEL)
        return self.by_others(CPU_BLAME, lost)

    @cached_property
    def _own_kernel_work(self) -> Floats | None:
        """Part of what the kernel's threads did that was for a cgroup itself: to receive packets which it sent or
        received, and to pass its block IO on; None where neither is measured, or nothing was done.

        Many packets on a CPU are handled by its ksoftirqd, for which the threads that they are for wait as any other;
        and so does a disk's user for the threads of a loop, encrypted or mapped device.
        """
        work = self.kernel_work
        done = sum(work.values())
        if done <= 0:
            return None
        own = [self.rate(_DEFERRED)] if self.has(_DEFERRED) else []
        disks = work.get(_BLOCK_DEVICES, 0.0)
        if disks > 0 and (part := self._part_of_block_io) is not None:
            own.append(part * disks)
        return np.clip(np.nan_to_num(own).sum(axis=0) / done, 0.0, 1.0) if own else None

    @property
    def _part_of_block_io(self) -> Floats | None:
        """Each cgroup's part of the block IO of the host's disks; None where not measured.

        Some of the kernel's threads work by request (of a loop device), some by byte (of an encrypted one): it is the
        smaller part of the two. The requests of a stack's devices (a loop device and the disk under it) count on each;
        those that the kernel's threads pass on are of the cgroup that they work for, where the kernel tells it
        (`probes/blockio.py`).
        """
        ios, moved = (self._of_host(column, scale=1.0) for column in (_HOST_IOS, _HOST_IO_BYTES))
        own_bytes = self.total(*_IO_BYTES)
        if not ios or moved is None or own_bytes is None or not self.has(_IOS):
            return None
        parts = np.minimum(np.nan_to_num(self.rate(_IOS)) / ios, 1.0)
        return np.minimum(parts, np.nan_to_num(own_bytes) / moved) if moved else parts

    @property
    def kernel_work(self) -> Mapping[str, float]:
        """CPUs that the kernel's own threads used on the whole host, by what they do; empty where not measured."""
        return {work: grown for name, work in _WORK_COLUMNS.items() if (grown := self._of_host(name)) is not None}

    @property
    def cpus(self) -> int:
        """Number of the host's CPUs that are online, in the newest frame that says it; 0 where none does."""
        for frame in reversed(self.window.frames):
            table = frame.tables.get(HOST)
            if table is not None and _CPUS in table.columns:
                return int(table.columns[_CPUS][0])
        return 0

    @property
    def stolen(self) -> float | None:
        """Time that the hypervisor did not run the host's CPUs for each second of work that they did; None where not
        measured."""
        busy, stolen = self._of_host(_BUSY), self._of_host(_STOLEN)
        if busy is None or stolen is None:
            return None
        if stolen <= 0:
            return 0.0
        return stolen / busy if busy > 0 else None

    def _of_host(self, column: str, scale: float = 1e-9) -> float | None:
        """Growth per second of a counter of the host, times `scale`: of nanoseconds, in seconds per second. None where
        it is not measured."""
        first, last = (frame.tables.get(HOST) for frame in (self._recent.frames[0], self._recent.last))
        if first is None or last is None or column not in first.columns or column not in last.columns:
            return None
        return max(int(last.columns[column][0]) - int(first.columns[column][0]), 0) * scale / self.seconds

    @property
    def names(self) -> Mapping[int, str]:
        """Paths by id of the cgroups of this frame and of those that are recently gone, and names of the kernel and of
        folded pairs."""
        if self._names is None:
            alive = {info.id: info.path for info in self.cgroups}
            self._names = {**self._gone, **alive, KERNEL_ID: KERNEL, OTHER_ID: OTHER}
        return self._names

    def ref(self, path: str) -> CgroupRef:
        """Names of the cgroup at a path, also of one that is recently gone, or of a group; none for any other word."""
        row = self.tree.row_of(path)
        if row is not None:
            return ref_of(self.cgroups[row])
        return self._gone_refs[path] if path in self._gone_refs else group_ref(path)

    def _find_blame(self, table: str) -> Blame | None:
        whole = [frame for frame in self._recent.frames if table in frame.tables]
        if len(whole) < 2 or whole[-1] is not self._recent.last:
            return None
        blame = blame_between(whole[0], whole[-1], table)
        if table == CPU_BLAME:
            blame = self._without_interrupts(self._without_own_work(blame))
        own = self._own_subtree(blame)
        return blame.without(own) if own.any() else blame

    def _without_own_work(self, blame: Blame) -> Blame:
        """Take off the kernel what its threads did for the victims themselves."""
        own = self._own_kernel_work
        if own is None or not own.any() or not len(blame.victims):
            return blame
        parts = self._of_ids(own, blame.victims)
        return blame.scaled(np.where(blame.culprits == np.uint64(KERNEL_ID), 1.0 - parts, 1.0))

    def _without_interrupts(self, blame: Blame) -> Blame:
        """Blame on the kernel what interrupts took on top of the culprits while these held a CPU.

        Interrupts for a culprit's own packets stay with it.
        """
        taken = self.lost_to_others("cpu:irq")
        held = next((name for name in _HELD if self.has(name)), None)
        if taken is None or held is None or not len(blame.victims):
            return blame
        ran = self.rate(held)
        parts = np.divide(taken, ran, out=np.zeros(len(ran)), where=(ran > 0) & np.isfinite(taken))
        parts = np.where(parts >= LEAST_INTERRUPTED, np.minimum(parts, 1.0), 0.0)
        if not parts.any():
            return blame
        moved = self._of_ids(parts, blame.culprits) * blame.amounts
        return blame.moved(moved, KERNEL_ID) if moved.any() else blame

    def _of_ids(self, column: Floats, ids: NDArray[np.uint64]) -> Floats:
        """Values of a column by cgroup id, each id looked up once; 0 for ids without a row."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        place, known = positions(self.ids, distinct)
        return np.asarray(np.where(known, column[place], 0.0)[inverse], dtype=np.float64)

    def _own_subtree(self, blame: Blame) -> NDArray[np.bool_]:
        inner = np.sort(self.ids[np.array(sorted(self.tree.inner), dtype=np.int64)])
        own = np.zeros(len(blame.victims), dtype=np.bool_)
        if not len(inner):
            return own
        place = np.minimum(np.searchsorted(inner, blame.victims), len(inner) - 1)
        for row in np.flatnonzero(inner[place] == blame.victims).tolist():
            culprit = self.names.get(int(blame.culprits[row]), "")
            own[row] = is_below(culprit, self.names[int(blame.victims[row])])
        return own


def _pick(table: Table, wanted: frozenset[str]) -> Table:
    columns: Mapping[str, Column] = {name: column for name, column in table.columns.items() if name in wanted}
    return Table(table.keys, columns)


def prune(frame: Frame, columns: frozenset[str], tables: frozenset[str]) -> Frame:
    """Return a frame with only these columns and tables, and what a view reads of the host."""
    kept = {name: table for name, table in frame.tables.items() if name in tables}
    kept["cgroup"] = _pick(frame.cgroup, columns)
    host = _pick(frame.tables[HOST], HOST_COLUMNS) if HOST in frame.tables else None
    if host is not None and host.columns:
        kept[HOST] = host
    return Frame(frame.monotonic_ns, frame.wall_ns, frame.cgroups, kept)
