"""A long series drawn from a recording: blocks of recorded ticks in a random order, with state carried through.

A moving-block bootstrap (Kuensch, Annals of Statistics 17, 1989): blocks of some minutes begin anywhere in the
recording, each holds all cgroups of the host, so what happens together stays together. Clocks go on, counters go on by
what they grew in the recorded tick, gauges are as recorded, and one judge with its baselines, hysteresis and open
verdicts judges all of it, the recording in its own order first.

What that shows: how often the judge errs over days about the behaviour that was recorded, with baselines that have
learned for days, at all hours of their days, and with permutation tests over ever new orders. What it cannot show:
ordinary behaviour that the recording does not hold, and anything slower than a block (a leak, a daily rhythm). So its
bound is of the judge's errors given this work; that of the work itself is the live part's. A minute that misled the
judge once does so each time it is drawn, so the number of recorded minutes behind the verdicts is told as well. A joint
of two blocks is a jump that no work makes; it can add verdicts, and these are counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, HOST, CgroupInfo, Column, Frame, Table
from api.metrics import BY_COLUMN, MetricKind
from api.window import subtract
from detector.blame import blame_between


@dataclass(frozen=True, slots=True)
class Tick:
    """What one recorded tick added; some 50 KB for fifty cgroups."""

    wall_ns: int
    passed_ns: int
    cgroups: tuple[CgroupInfo, ...]
    grown: Mapping[str, Table]
    """Growth since the tick before; gauges as they were."""
    sources: Mapping[str, str]


class Ticks:
    """Takes a recording's frames in order, and keeps what each tick added."""

    def __init__(self) -> None:
        self._before: Frame | None = None

    def take(self, frame: Frame) -> Tick | None:
        """What a frame added to the one before; None for the first."""
        before, tables = self._before, dict(frame.tables)
        if before is not None:
            # A table that is not read in every tick grows from when it was read.
            tables = {**before.tables, **tables}
        self._before = Frame(frame.monotonic_ns, frame.wall_ns, frame.cgroups, tables)
        if before is None:
            return None
        grown = {name: _grown(name, before, frame) for name in frame.tables if name in before.tables}
        return Tick(frame.wall_ns, frame.monotonic_ns - before.monotonic_ns, frame.cgroups, grown, frame.sources)


class Series:
    """Ticks in any order as one run that goes on after `last`, the newest frame that the judge has seen."""

    def __init__(self, last: Frame, ticks: Sequence[Tick]) -> None:
        self.last = last
        """The newest frame."""
        self._totals: dict[str, _Totals] = {}
        names = dict.fromkeys(name for tick in ticks for name in tick.grown)
        for name in names:
            grown = [tick.grown[name] for tick in ticks if name in tick.grown]
            self._totals[name] = _Totals(grown, last.tables.get(name), stays=name not in (CGROUP, HOST))

    def follow(self, tick: Tick) -> Frame:
        """Return the next frame: a tick on the clocks and counters of the series."""
        last = self.last
        # The judge knows cgroups that did not change by their tuple's identity.
        cgroups = last.cgroups if last.cgroups == tick.cgroups else tick.cgroups
        tables = {name: self._totals[name].add(table) for name, table in tick.grown.items()}
        monotonic_ns, wall_ns = last.monotonic_ns + tick.passed_ns, last.wall_ns + tick.passed_ns
        self.last = Frame(monotonic_ns, wall_ns, cgroups, tables, sources=tick.sources)
        return self.last


class _Rows:
    """All rows that occur in some tables, ordered by their keys."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._ids = {name: np.unique(np.concatenate([each.keys[name] for each in tables])) for name in tables[0].keys}
        self._codes = np.unique(np.concatenate([self._coded(each) for each in tables]))
        self.keys: dict[str, Column] = {}
        codes = self._codes
        for name, ids in reversed(self._ids.items()):
            self.keys[name] = ids[codes % len(ids)]
            codes = codes // len(ids)

    def __len__(self) -> int:
        return len(self._codes)

    def find(self, table: Table) -> NDArray[np.intp]:
        """The place of each row of one of the tables."""
        return np.searchsorted(self._codes, self._coded(table))

    def _coded(self, table: Table) -> NDArray[np.int64]:
        codes = np.zeros(len(table), dtype=np.int64)
        for name, ids in self._ids.items():
            codes = codes * len(ids) + np.searchsorted(ids, table.keys[name])
        return codes


class _Totals:
    """The counters of one table for all rows that occur."""

    def __init__(self, grown: Sequence[Table], last: Table | None, *, stays: bool) -> None:
        known = [*grown, *([last] if last is not None else [])]
        self._rows = _Rows(known)
        self._stays = stays
        """Rows stay once they are there, as in the agent's own ledgers; else a row that comes back counts from zero."""
        self._columns: dict[str, NDArray[Any]] = {}
        for table in known:
            for name, column in table.columns.items():
                self._columns.setdefault(name, np.zeros(len(self._rows), dtype=column.dtype))
        if last is not None:
            rows = self._rows.find(last)
            for name, column in last.columns.items():
                self._columns[name][rows] = np.nan_to_num(column)

    def add(self, grown: Table) -> Table:
        """Add a tick's growth and return the totals, in its rows or in all; what was not measured stays so."""
        rows = self._rows.find(grown)
        out: dict[str, Column] = {}
        for name, column in grown.columns.items():
            metric, total = BY_COLUMN.get(name), self._columns[name]
            if metric and metric.kind is MetricKind.GAUGE:
                out[name] = column
                continue
            growth: NDArray[Any] = column
            before = total[rows]
            if not self._stays:
                total[:] = 0
            total[rows] = before + (np.nan_to_num(growth) if growth.dtype.kind == "f" else growth)
            if self._stays:
                out[name] = total.copy()
            else:
                out[name] = np.where(np.isnan(growth), growth, total[rows]) if growth.dtype.kind == "f" else total[rows]
        return Table(self._rows.keys if self._stays else grown.keys, out)


def _grown(name: str, before: Frame, frame: Frame) -> Table:
    if name in (CGROUP, HOST):
        return subtract(frame.tables[name], before.tables[name])[0]
    blame = blame_between(before, frame, name)
    nanoseconds = np.rint(blame.amounts * (frame.monotonic_ns - before.monotonic_ns)).astype(np.uint64)
    return Table({"cgroup": blame.victims, "culprit": blame.culprits}, {f"{name}_ns": nanoseconds})
