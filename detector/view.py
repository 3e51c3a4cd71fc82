"""What symptoms look at: one tick as rates, each column and blame table computed once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo, Table
from api.metrics import BY_COLUMN, Kind
from api.window import Window, subtract

Floats = NDArray[np.float64]


class Baselines(Protocol):
    """What a workload usually shows; the seam to whoever learns it."""

    def expected(self, signal: str, cgroups: tuple[CgroupInfo, ...]) -> Floats:
        """Usual value of a signal (`cpi`, `llc_miss_ratio`) for each cgroup; NaN where it is not known yet."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Rows of a blame table ordered by victim; amounts in seconds per second."""

    victims: NDArray[np.uint64]
    culprits: NDArray[np.uint64]
    amounts: Floats

    def of(self, victim: int) -> tuple[NDArray[np.uint64], Floats]:
        """Culprits of one victim and their amounts."""
        key = np.uint64(victim)
        start, end = np.searchsorted(self.victims, key, "left"), np.searchsorted(self.victims, key, "right")
        return self.culprits[start:end], self.amounts[start:end]


class View:
    """The newest `span_seconds` of a window as rates, with a row for each cgroup of the newest frame.

    Only `columns` are looked at. Raises ValueError with fewer than two frames or no time between them.
    """

    def __init__(
        self, window: Window, columns: Iterable[str], *, span_seconds: float = 1.0, baselines: Baselines | None = None
    ) -> None:
        recent = window.tail(span_seconds)
        if recent.seconds <= 0:
            raise ValueError("a view needs two frames with time between them")
        self.window = window
        self.cgroups = recent.cgroups
        self.ids = recent.last.cgroup.ids
        self.seconds = recent.seconds
        self.baselines = baselines
        self._recent = recent
        wanted = frozenset(columns)
        grown, _ = subtract(_pick(recent.last.cgroup, wanted), _pick(recent.frames[0].cgroup, wanted))
        self._columns = grown.columns
        self._rates: dict[str, Floats] = {}
        self._blame: dict[str, Blame | None] = {}
        self._paths: dict[int, str] | None = None
        self._rows: dict[str, int] | None = None

    def has(self, *columns: str) -> bool:
        """Whether all the columns are measured."""
        return all(column in self._columns for column in columns)

    def rate(self, column: str) -> Floats:
        """Growth per second in the base unit (nanoseconds become seconds per second); gauges as they stand.

        Raises KeyError for a column that is not measured.
        """
        if column not in self._rates:
            metric = BY_COLUMN[column]
            whole = 1.0 if metric.kind is Kind.GAUGE else self.seconds
            self._rates[column] = self._columns[column].astype(np.float64) * (metric.unit.scale / whole)
        return self._rates[column]

    def total(self, *columns: str) -> Floats | None:
        """Sum of the rates of those columns that are measured; None where none is."""
        present = [self.rate(column) for column in columns if column in self._columns]
        return np.asarray(np.sum(present, axis=0), dtype=np.float64) if present else None

    def expected(self, signal: str) -> Floats:
        """The baselines' usual value for each row; NaN without any."""
        if self.baselines is None:
            return np.full(len(self.ids), np.nan)
        return self.baselines.expected(signal, self.cgroups)

    def blame(self, table: str) -> Blame | None:
        """The blame table over the newest frames that carry it; None with fewer than two of them."""
        if table not in self._blame:
            self._blame[table] = self._find_blame(table)
        return self._blame[table]

    def path_of(self, identity: int) -> str | None:
        """Path of a cgroup of any frame in the window."""
        if self._paths is None:
            self._paths = {info.id: info.path for frame in self.window.frames for info in frame.cgroups}
        return self._paths.get(identity)

    def row_of(self, path: str) -> int | None:
        """Row of the cgroup at a path."""
        if self._rows is None:
            self._rows = {info.path: row for row, info in enumerate(self.cgroups)}
        return self._rows.get(path)

    def _find_blame(self, table: str) -> Blame | None:
        whole = [frame for frame in self._recent.frames if table in frame.tables]
        if len(whole) < 2 or whole[-1] is not self._recent.last:
            return None
        delta = Window(whole).delta(table)
        order = np.argsort(delta.table.ids, kind="stable")
        column = delta.table.columns[f"{table}_ns"]
        amounts = column.astype(np.float64)[order] * (1e-9 / delta.seconds)
        culprits = delta.table.keys["culprit"].astype(np.uint64)[order]
        return Blame(delta.table.ids[order], culprits, amounts)


def _pick(table: Table, wanted: frozenset[str]) -> Table:
    columns: Mapping[str, NDArray[np.generic]] = {
        name: column for name, column in table.columns.items() if name in wanted
    }
    return Table(table.keys, columns)
