"""Rows of the live view: lost time of each cgroup by cause and culprit. Pure: a window in, rows out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from api.cgroup_names import display_names
from api.frame import KERNEL_ID, OTHER_ID, CgroupInfo
from api.histogram import percentile_ns
from api.loss import CAUSED_BY_OTHERS, lost_ns, total_lost_ns
from api.window import Delta, Window
from koordlet.snapshot.document import KERNEL_PATH, OTHER_PATH

BLAME_TABLES = {"cpu.blame": "cpu", "memory.blame": "memory", "blockio.blame": "blockio", "net.blame": "net"}
"""Tables whose amounts are lost time, and the resource; smt.blame is exposure, not loss."""
RATE_SECONDS = 5.0
"""Rates are over this much of the window, so that one slow second does not reshuffle the screen."""
GONE = "[gone]"


@dataclass(frozen=True, slots=True)
class CulpritShare:
    """A cgroup that held the resource while the victim waited, in lost seconds per second."""

    id: int
    name: str
    resource: str
    lost: float


@dataclass(frozen=True, slots=True)
class TopRow:
    """One cgroup; all times are seconds per second."""

    info: CgroupInfo
    lost: float
    causes: Mapping[str, float]
    """Nonzero causes of `api.loss`, in its order; they sum to `lost`."""
    oncpu: float
    culprits: tuple[CulpritShare, ...]
    """Biggest first."""

    @property
    def by_others(self) -> float:
        """Part lost to others."""
        return sum(value for name, value in self.causes.items() if name in CAUSED_BY_OTHERS)

    @property
    def is_quiet(self) -> bool:
        """Return whether it neither runs nor loses enough for a line."""
        return self.lost < 0.0005 and self.oncpu < 0.0005


class Order(Enum):
    """Sort keys of the rows."""

    LOST = "lost"
    BY_OTHERS = "by others"
    ONCPU = "on cpu"
    NAME = "name"

    @property
    def following(self) -> "Order":
        """The next one, round and round."""
        orders = list(Order)
        return orders[(orders.index(self) + 1) % len(orders)]


def rows(window: Window, *, culprits: int = 3) -> list[TopRow]:
    """One row for each cgroup, as the newest frames have it; needs two frames.

    Not sorted. A cause that nothing measures is absent from every row.
    """
    recent = window.tail(RATE_SECONDS)
    delta = recent.delta()
    ledger = {name: column / 1e9 / delta.seconds for name, column in lost_ns(delta).items()}
    total = total_lost_ns(ledger) if ledger else np.zeros(len(recent.cgroups))
    oncpu = _oncpu(delta, len(recent.cgroups))
    blamed = _culprits(recent, culprits)
    names = display_names(recent.cgroups)
    return [
        TopRow(
            info if names[info.path] == info.name else replace(info, name=names[info.path]),
            float(total[row]),
            {name: float(column[row]) for name, column in ledger.items() if column[row] > 0},
            float(oncpu[row]),
            blamed.get(info.id, ()),
        )
        for row, info in enumerate(recent.cgroups)
    ]


def ordered(found: Iterable[TopRow], order: Order) -> list[TopRow]:
    """Sorted by `order`, biggest first (names ascending); ties by path, so that the screen is calm."""
    keys = {
        Order.LOST: lambda row: (-round(row.lost, 4), row.info.path),
        Order.BY_OTHERS: lambda row: (-round(row.by_others, 4), row.info.path),
        Order.ONCPU: lambda row: (-round(row.oncpu, 4), row.info.path),
        Order.NAME: lambda row: (row.info.name, row.info.path),
    }
    return sorted(found, key=keys[order])


def _oncpu(delta: Delta, count: int) -> NDArray[np.float64]:
    for column in ("cpu.oncpu_ns", "cpustat.usage_ns"):
        if column in delta.table.columns:
            return delta.rate(column) / 1e9
    return np.zeros(count)


def _culprits(window: Window, most: int) -> dict[int, tuple[CulpritShare, ...]]:
    """Victim to its biggest culprits over all resources."""
    shown = display_names(window.cgroups, (info for frame in window.frames for info in frame.cgroups))
    names = {info.id: shown[info.path] for frame in window.frames for info in frame.cgroups}
    found: dict[int, list[CulpritShare]] = {}
    for table, resource in BLAME_TABLES.items():
        delta = _blame(window, table)
        if delta is None:
            continue
        rates = next(iter(delta.table.columns.values())).astype(np.float64) / 1e9 / delta.seconds
        culprit_ids = delta.table.keys["culprit"]
        for row in np.flatnonzero((rates > 0) & (culprit_ids != delta.table.ids)).tolist():
            culprit = int(culprit_ids[row])
            blame = CulpritShare(culprit, _name_of(culprit, names), resource, float(rates[row]))
            found.setdefault(int(delta.table.ids[row]), []).append(blame)
    return {victim: tuple(sorted(shares, key=lambda c: (-c.lost, c.name))[:most]) for victim, shares in found.items()}


def _blame(window: Window, table: str) -> Delta | None:
    """Growth over the frames that carry the table; None with fewer than two of them (old frames may be thinned)."""
    whole = [frame for frame in window.frames if table in frame.tables]
    if len(whole) < 2 or whole[-1] is not window.last:
        return None
    return Window(whole).delta(table)


def _name_of(identity: int, names: Mapping[int, str]) -> str:
    if identity == KERNEL_ID:
        return KERNEL_PATH
    if identity == OTHER_ID:
        return OTHER_PATH
    return names.get(identity, GONE)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of one cgroup over the recent frames, in seconds; NaN where nothing was counted."""

    name: str
    p50: float
    p99: float


def latencies(window: Window, cgroup: int) -> list[Latencies]:
    """Distributions that the recent frames carry for a cgroup and that counted anything."""
    names = {"cpu.wait_hist": "run-queue wait", "turnaround.hist": "request turnaround", "throttle.hist": "throttling"}
    recent = window.tail(RATE_SECONDS)
    whole = [frame for frame in recent.frames if any(name in frame.cgroup.columns for name in names)]
    if len(whole) < 2 or whole[-1] is not recent.last:
        return []
    table = Window(whole).delta().table
    row = np.flatnonzero(table.ids == cgroup)
    if not len(row):
        return []
    found = []
    for column, name in names.items():
        if column not in table.columns:
            continue
        slots = table.columns[column][row[0]].astype(np.int64)
        if slots.sum():
            found.append(Latencies(name, *(float(percentile_ns(slots, q)) / 1e9 for q in (0.5, 0.99))))
    return found


def facts(window: Window, cgroup: int) -> dict[str, float]:
    """Return further figures of a cgroup in the recent frames; those not measured are absent."""
    recent = window.tail(RATE_SECONDS)
    row = np.flatnonzero(recent.last.cgroup.ids == cgroup)
    if not len(row):
        return {}
    delta, gauges = recent.delta(), recent.last.cgroup.columns
    grown = {name: float(column[row[0]]) for name, column in delta.table.columns.items() if column.ndim == 1}
    now = {name: float(column[row[0]]) for name, column in gauges.items() if column.ndim == 1}
    found = {
        "cycles_per_instruction": _ratio(grown.get("pmu.cycles"), grown.get("pmu.instructions")),
        "llc_miss_ratio": _ratio(grown.get("pmu.llc_misses"), grown.get("pmu.llc_references")),
        "llc_bytes": now.get("resctrl.llc_occupancy_bytes", np.nan),
        "memory_bytes_per_second": grown.get("resctrl.mbm_total_bytes", np.nan) / delta.seconds,
        "memory_usage_bytes": now.get("memstat.usage_bytes", np.nan),
        "smt_foreign": grown.get("cpu.smt_foreign_ns", np.nan) / 1e9 / delta.seconds,
        "requests_per_second": grown.get("turnaround.requests", np.nan) / delta.seconds,
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _ratio(part: float | None, whole: float | None) -> float:
    return part / whole if part is not None and whole else np.nan
