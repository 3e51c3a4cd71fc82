"""Series of frames, and their deltas, rates and percentiles: no other module subtracts counters.

Blame between pairs of cgroups is the exception, where it is needed fast (`detector/blame.py`). A full table of pairs
folds its smallest into `OTHER_ID`: what they had before is no growth of that one.

Rows are matched by key, never by position: cgroups come and go between frames. A cgroup born inside the
window counts from zero; a counter that went backwards (a probe restarted) counts from zero as well and is
reported in `resets`, so no delta is ever negative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, OTHER_ID, CgroupInfo, Column, Frame, Table, align
from api.histogram import percentile_ns
from api.metrics import BY_COLUMN, MetricKind


@dataclass(frozen=True, slots=True)
class Delta:
    """Growth of each counter between two frames, in the rows of the later frame's table."""

    table: Table
    seconds: float
    resets: int

    def rate(self, column: str) -> NDArray[np.float64]:
        """Growth of a column per second; nanosecond columns give ns per second."""
        return self.table.columns[column].astype(np.float64) / self.seconds

    def percentile_ns(self, column: str, quantile: float) -> NDArray[np.float64]:
        """Quantile of a histogram column over the window, in ns, NaN where nothing was counted."""
        return percentile_ns(self.table.columns[column].astype(np.int64), quantile)


class Window:
    """An immutable run of frames, oldest first; at least one."""

    __slots__ = ("frames",)

    def __init__(self, frames: Sequence[Frame]) -> None:
        if not frames:
            raise ValueError("a window needs at least one frame")
        self.frames = tuple(frames)

    @property
    def last(self) -> Frame:
        """The newest frame."""
        return self.frames[-1]

    @property
    def seconds(self) -> float:
        """Time from the oldest to the newest frame."""
        return (self.frames[-1].monotonic_ns - self.frames[0].monotonic_ns) / 1e9

    @property
    def cgroups(self) -> tuple[CgroupInfo, ...]:
        """The cgroups of the newest frame, in the row order of its dense table."""
        return self.last.cgroups

    def delta(self, table: str = CGROUP) -> Delta:
        """Growth of every column of `table` since the oldest frame that has it; `Delta.seconds` says how long that is.

        Columns that the older frame lacks are left out: their growth is not known. Raises KeyError if the newest
        frame has no such table, ValueError if no older frame has it.
        """
        last = self.frames[-1]
        later = last.tables[table]
        for first in self.frames[:-1]:
            if table in first.tables:
                grown, resets = subtract(later, first.tables[table])
                return Delta(grown, (last.monotonic_ns - first.monotonic_ns) / 1e9, resets)
        raise ValueError(f"a delta of {table} needs two frames that have it")

    def reading_seconds(self, column: str) -> NDArray[np.float64]:
        """Return the time that a counter of the dense table grew for between the oldest and the newest frame, by row.

        Of a column that is read in turn this is the time between the two readings, NaN where the newest one is not
        of the newest frame, or where there is no earlier one: the growth is then not known. A cgroup that is new counts
        from its birth, within the window.
        """
        first, last = self.frames[0], self.frames[-1]
        whole = np.full(len(last.cgroups), self.seconds)
        read = last.read_ns.get(column)
        if read is None or len(self.frames) < 2:
            return whole
        before = first.read_ns.get(column)
        if before is None:
            before = np.full(len(first.cgroups), float(first.monotonic_ns))
        earlier = align(last.cgroup.ids, Table({"cgroup": first.cgroup.ids}, {column: before}))[column]
        seconds = (read - earlier.astype(np.float64)) / 1e9
        seconds[~np.isin(last.cgroup.ids, first.cgroup.ids)] = self.seconds
        return np.where(read >= last.monotonic_ns, seconds, np.nan)

    def tail(self, seconds: float) -> "Window":
        """The shortest window of the newest frames that spans at least `seconds` (all if none does)."""
        limit = self.last.monotonic_ns - int(seconds * 1e9)
        for start in range(len(self.frames) - 2, -1, -1):
            if self.frames[start].monotonic_ns <= limit:
                return Window(self.frames[start:])
        return self


def subtract(later: Table, earlier: Table) -> tuple[Table, int]:
    """`later` minus `earlier` row by row (matched by all keys), and how many rows had a counter reset.

    Gauges (by `api.metrics`) are those of the later frame; NaN, not measured, stays NaN. Of a table of pairs, what
    `OTHER_ID` took over from pairs that are gone, or came again, is no growth.
    """
    if not len(earlier) or not len(later):
        return later, 0
    matched = None if _same_keys(later, earlier) else _match(later, earlier)
    resets = np.zeros(len(later), dtype=np.bool_)
    columns: dict[str, Column] = {}
    for name, column in later.columns.items():
        metric = BY_COLUMN.get(name)
        if metric and metric.kind is MetricKind.GAUGE:
            columns[name] = column
            continue
        if name not in earlier.columns:
            continue
        fresh: NDArray[Any] = column
        old: NDArray[Any] = earlier.columns[name].astype(column.dtype, copy=False)
        if matched is not None:
            rows, is_new = matched
            old = old[rows]
            old[is_new] = 0
        backwards = fresh < old
        if backwards.any():
            resets |= backwards.reshape(len(later), -1).any(axis=1)
            old = np.where(backwards, 0, old).astype(column.dtype, copy=False)
        if "culprit" in later.keys:
            old = np.minimum(_with_folded(later, earlier, old, name), fresh)
        columns[name] = fresh - old
    return Table(later.keys, columns), int(resets.sum())


def _with_folded(later: Table, earlier: Table, old: NDArray[Any], name: str) -> NDArray[Any]:
    """Earlier amounts by row of `later`; those of `OTHER_ID` are all that no other pair of the victim grew from."""
    others = later.keys["culprit"] == np.uint64(OTHER_ID)
    if not others.any():
        return old
    victims, inverse = np.unique(np.concatenate([later.ids, earlier.ids]), return_inverse=True)
    rows, earlier_rows = inverse[: len(later)], inverse[len(later) :]
    rest = np.zeros(len(victims), dtype=old.dtype)
    np.add.at(rest, earlier_rows, earlier.columns[name].astype(old.dtype, copy=False))
    np.subtract.at(rest, rows[~others], old[~others])
    return np.where(others, rest[rows], old)


def _same_keys(later: Table, earlier: Table) -> bool:
    """Return whether both have the same keys in the same rows, as when no cgroup came or went."""
    same = later.keys.keys() == earlier.keys.keys() and len(later) == len(earlier)
    return same and all(np.array_equal(column, earlier.keys[name]) for name, column in later.keys.items())


def _match(later: Table, earlier: Table) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """For each row of `later`, its row in `earlier`, which has none of it where the second array is true.

    Neither table is empty.
    """
    if not later.keys:
        rows = np.arange(len(later))
        return np.minimum(rows, len(earlier) - 1), rows >= len(earlier)
    if len(later.keys) == 1:
        wanted, known = (next(iter(table.keys.values())) for table in (later, earlier))
    else:
        wanted, known = _codes(later, earlier)
    order = np.argsort(known, kind="stable")
    ranked = known[order]
    position = np.minimum(np.searchsorted(ranked, wanted), len(ranked) - 1)
    return order[position], ranked[position] != wanted


def _codes(later: Table, earlier: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All keys of each row as one number, the same number for the same keys in both tables."""
    codes = np.zeros(len(later) + len(earlier), dtype=np.int64)
    for name in sorted(later.keys):
        values, numbered = np.unique(np.concatenate([later.keys[name], earlier.keys[name]]), return_inverse=True)
        codes = codes * len(values) + numbered
    return codes[: len(later)], codes[len(later) :]
