"""Collectors: kernel counters of files as columns. They read and parse; they derive nothing and write nothing.

To add a collector `x`, write two files: `x.py` here with one class derived from `Collector`, whose `metrics` declare
its columns, and `tests/koordlet/collectors/test_x.py`. `open` raises `Unsupported(reason, remedy)` where the host lacks
the files. The columns are then in frames, deltas and metrics; `make docs` documents them. A
collector of another distribution is found by its entry point in the group `koord.collectors` and needs no change here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import parent
from api.frame import CGROUP, CgroupInfo, Column, Reading, Table, align
from api.metrics import Metric
from koordlet.host.cgroups.hierarchies import Hierarchies
from koordlet.host.files import HostTree, KeptFiles


@dataclass(frozen=True, slots=True)
class Host:
    """Access to kernel files for collectors."""

    tree: HostTree
    hierarchies: Hierarchies


@dataclass(frozen=True)
class Round:
    """One tick's work: all living cgroups, and which of them are due for costly files."""

    cgroups: Sequence[CgroupInfo]
    due: Sequence[CgroupInfo]
    now_ns: int = 0
    """Monotonic time of the tick."""
    each_tick: frozenset[str] = frozenset()
    """Sources whose files are read of all cgroups, because no probe measures the same."""

    @cached_property
    def ids(self) -> NDArray[np.uint64]:
        """Ids of all living cgroups, in their order."""
        return np.array([info.id for info in self.cgroups], dtype=np.uint64)


class Collector(ABC):
    """One source of columns from kernel files."""

    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Its columns, except those that `api/metrics.py` has already."""

    @classmethod
    @abstractmethod
    def open(cls, host: Host) -> "Collector":
        """Find the files. Raises Unsupported(reason) where this host has none."""

    @abstractmethod
    def collect(self, work: Round) -> Reading:
        """Raw columns of this tick."""

    @abstractmethod
    def forget(self, gone: Sequence[CgroupInfo]) -> None:
        """Close what is kept for cgroups that are gone."""

    def close(self) -> None:  # noqa: B027 - most keep nothing open
        """Release everything; idempotent."""


class PerCgroupFile:
    """One file of each cgroup parsed to a row of numbers; rows not due keep their last value.

    `parse` turns the content into one number per column and raises ValueError or KeyError on a torn or foreign
    file: such a row is skipped and counted, never guessed.
    """

    def __init__(self, files: KeptFiles, columns: Sequence[str], parse: Callable[[bytes], Sequence[float]]) -> None:
        self._files = files
        self._columns = tuple(columns)
        self._parse = parse
        self._row_of: dict[int, int] = {}
        self._ids: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._values: NDArray[np.float64] = np.empty((0, len(self._columns)))
        self._read_ns: NDArray[np.float64] = np.empty(0)

    def collect(self, cgroups: Iterable[CgroupInfo], now_ns: int = 0) -> None:
        """Read and parse the files of these cgroups at this time; each is read before the next is asked for."""
        read, parse = self._files.read, self._parse
        for info in cgroups:
            content = read(info.path)
            if content is None:
                continue
            try:
                parsed = parse(content)
            except (ValueError, KeyError, IndexError):
                self._files.malformed += 1
                continue
            row = self._row_of.get(info.id)
            if row is None:
                row = self._add_row(info.id)
            self._values[row], self._read_ns[row] = parsed, now_ns

    def _add_row(self, identity: int) -> int:
        row = len(self._row_of)
        if row == len(self._ids):
            self._ids = np.resize(self._ids, max(64, 2 * row))
            self._values = np.resize(self._values, (max(64, 2 * row), len(self._columns)))
            self._read_ns = np.resize(self._read_ns, max(64, 2 * row))
        self._row_of[identity] = row
        self._ids[row] = identity
        return row

    def table(self) -> Table:
        """Every row known, as float columns; views that the next collection writes to."""
        count = len(self._row_of)
        columns: dict[str, Column] = {
            name: self._values[:count, position] for position, name in enumerate(self._columns)
        }
        return Table({"cgroup": self._ids[:count]}, columns)

    def times(self) -> NDArray[np.float64]:
        """When every row was read; a view that the next collection writes to."""
        return self._read_ns[: len(self._row_of)]

    def hold(self, now_ns: int) -> None:
        """Take every row as read at this time: what was not read is known not to have changed."""
        self._read_ns[: len(self._row_of)] = now_ns

    def has(self, identity: int) -> bool:
        """Return whether the cgroup's file was read before."""
        return identity in self._row_of

    def was_read(self, identity: int, now_ns: int) -> bool:
        """Return whether the cgroup's file was read in the tick of this time."""
        return identity in self._row_of and self.read_ns(identity) == now_ns

    def read_ns(self, identity: int) -> float:
        """Time in nanoseconds of a row's last reading; 0 for a row that was never read."""
        row = self._row_of.get(identity)
        return 0.0 if row is None else float(self._read_ns[row])

    def first_value(self, identity: int) -> float:
        """First column of a row as last read; 1 for a row that was never read."""
        row = self._row_of.get(identity)
        return 1.0 if row is None else float(self._values[row, 0])

    def unread(self, cgroups: Iterable[CgroupInfo]) -> list[CgroupInfo]:
        """Those of the cgroups whose file was never read."""
        return [info for info in cgroups if info.id not in self._row_of]

    def without_value(self) -> set[int]:
        """Cgroups whose first column was 0 when it was last read."""
        count = len(self._row_of)
        return set(self._ids[:count][self._values[:count, 0] == 0].tolist())

    def growth(self, identity: int, before: float, before_ns: float) -> float:
        """Growth of the first column a second since it had the value `before` at that time."""
        return (self.first_value(identity) - before) / max(self.read_ns(identity) - before_ns, 1.0) * 1e9

    def forget(self, gone: Sequence[CgroupInfo]) -> None:
        """Drop rows and descriptors of cgroups that are gone; the last row takes the place of a dropped one."""
        for info in gone:
            self._files.drop(info.path)
            row = self._row_of.pop(info.id, None)
            last = len(self._row_of)
            if row is not None and row != last:
                mover = int(self._ids[last])
                self._ids[row], self._values[row], self._read_ns[row] = mover, self._values[last], self._read_ns[last]
                self._row_of[mover] = row

    def lost(self, name: str) -> dict[str, int]:
        """Losses of this file, by kind."""
        return {f"{name}.vanished": self._files.vanished, f"{name}.malformed": self._files.malformed}

    def close(self) -> None:
        """Close every descriptor."""
        self._files.close()


class GrowthWalk:
    """Finds the cgroups whose counter grew, at the cost of few reads, where each cgroup counts for all above it too.

    Where a parent's total stands still, nothing below it grew, and no file there is read. The counter is the first
    column of the file.
    """

    def __init__(self) -> None:
        self.grown: dict[int, float] = {}
        """Cgroup to the growth of its counter a second, of those that the last walk found to have grown."""
        self._cgroups: Sequence[CgroupInfo] = ()
        self._below: dict[str, list[CgroupInfo]] = {}

    def walk(
        self, work: Round, file: PerCgroupFile, first: Container[int] = (), most: int | None = None
    ) -> Iterator[CgroupInfo]:
        """Parents before children, those in `first` before their siblings; each to be read before the next is asked
        for. The walk ends after the `most`th reading."""
        if work.cgroups is not self._cgroups:
            self._cgroups, self._below = work.cgroups, _by_nearest_parent(work.cgroups)
        self.grown = {}
        turn = {info.id for info in work.due}
        waiting, asked = [(info, True) for info in self._below.get("", ())], 0
        while waiting and asked != most:
            info, above_grew = waiting.pop()
            known, before, before_ns = file.has(info.id), file.first_value(info.id), file.read_ns(info.id)
            if known or above_grew or info.id in turn:
                asked += 1
                yield info
            readable = file.was_read(info.id, work.now_ns)
            grown = file.growth(info.id, before, before_ns) if readable and known else 0.0
            if grown:
                self.grown[info.id] = grown
            # Below a cgroup without the file (no such directory in the tree, or the counter switched off in it, before
            # or by now) the others that have one are read in every tick; which have one is found in turn.
            grew = readable and (not known or bool(grown))
            if grew or not readable:
                below = self._below.get(info.path, ())
                waiting += [(child, grew) for child in sorted(below, key=lambda child: child.id in first)]


def _by_nearest_parent(cgroups: Sequence[CgroupInfo]) -> dict[str, list[CgroupInfo]]:
    """Cgroups by the path of the nearest one above that is among them; those without one by the empty path."""
    paths = {info.path for info in cgroups}
    below: dict[str, list[CgroupInfo]] = {}
    for info in cgroups:
        above = parent(info.path)
        while above and above not in paths:
            above = parent(above)
        below.setdefault(above, []).append(info)
    return below


class FileCollector(Collector):
    """A collector made of per-cgroup files of one kind; subclasses only say which files and how to parse them."""

    source = ""

    def __init__(self, files: Sequence[PerCgroupFile]) -> None:
        self._per_cgroup = tuple(files)

    def due(self, work: Round, file: PerCgroupFile) -> Sequence[CgroupInfo]:  # noqa: ARG002 - for subclasses
        """Cgroups whose `file` is read in this tick."""
        return work.cgroups if self.source in work.each_tick else work.due

    def read(self, work: Round, file: PerCgroupFile) -> None:
        """Read one kind of file in this tick."""
        file.collect(self.due(work, file), work.now_ns)

    def collect(self, work: Round) -> Reading:
        columns: dict[str, Column] = {}
        lost: dict[str, int] = {}
        ids = work.ids
        read_ns: dict[str, Column] = {}
        for number, file in enumerate(self._per_cgroup):
            self.read(work, file)
            rows, times = file.table(), file.times()
            aligned = align(ids, Table(rows.keys, {**rows.columns, "": times}))
            read_ns |= dict.fromkeys(rows.columns, aligned.pop(""))
            columns |= aligned
            lost |= file.lost(f"{self.source}{number or ''}")
        return Reading({CGROUP: Table({"cgroup": ids}, columns)}, lost, read_ns)

    def forget(self, gone: Sequence[CgroupInfo]) -> None:
        for file in self._per_cgroup:
            file.forget(gone)

    def close(self) -> None:
        for file in self._per_cgroup:
            file.close()
