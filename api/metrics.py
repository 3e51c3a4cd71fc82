"""Every column in one table, a line each: exposition, snapshot and docs/metrics.md derive from it.

A column is what a frame carries (raw, native unit); a family is what Prometheus sees (base unit). Columns of
one family differ by constant labels, so `sum without (cause)` gives the whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """How a column behaves over time."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """Native unit of a column; `scale` leads to the Prometheus base unit."""

    NS = "ns"
    US = "us"
    SECONDS = "seconds"
    BYTES = "bytes"
    PAGES = "pages"
    RATIO = "ratio"
    COUNT = ""

    @property
    def scale(self) -> float:
        """Factor from the native unit to the base unit (seconds, bytes, ratio, count)."""
        return {Unit.NS: 1e-9, Unit.US: 1e-6}.get(self, 1.0)

    @property
    def base(self) -> str:
        """Suffix of the base unit in a Prometheus name."""
        return "seconds" if self in (Unit.NS, Unit.US) else self.value


@dataclass(frozen=True, slots=True)
class Metric:
    """One column and how it is shown."""

    column: str
    """Name in a frame: `<source>.<what>_<unit>`."""
    family: str
    """Prometheus family without prefix, unit and `_total`."""
    kind: Kind
    unit: Unit
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Constant labels of this column within its family."""
    table: str = "cgroup"
    """Table of the frame that carries it."""

    @property
    def series(self) -> str:
        """Full Prometheus name: `koord_<family>[_<unit>][_total]`."""
        unit = f"_{self.unit.base}" if self.unit.base else ""
        total = "_total" if self.kind is Kind.COUNTER else ""
        return f"koord_{self.family}{unit}{total}"


def _c(column: str, family: str, unit: Unit, text: str, /, table: str = "cgroup", **labels: str) -> Metric:
    return Metric(column, family, Kind.COUNTER, unit, text, labels, table)


def _g(column: str, family: str, unit: Unit, text: str, /, table: str = "cgroup", **labels: str) -> Metric:
    return Metric(column, family, Kind.GAUGE, unit, text, labels, table)


def _h(column: str, family: str, unit: Unit, text: str, /, table: str = "cgroup", **labels: str) -> Metric:
    return Metric(column, family, Kind.HISTOGRAM, unit, text, labels, table)


_WAIT = "Time runnable threads of the cgroup waited for a CPU, by cause"

WAIT_CAUSES = ("neighbour", "self", "own_quota", "ancestor_quota", "kernel", "idle", "unknown")
"""Causes of run-queue wait, in the order of the cpu probe's record; they sum to the whole wait."""

METRICS: tuple[Metric, ...] = (
    # cpu
    _c("cpu.oncpu_ns", "cgroup_cpu_oncpu", Unit.NS, "Time threads of the cgroup ran on a CPU"),
    _c(
        "cpu.wait_ns",
        "cgroup_cpu_wait_all",
        Unit.NS,
        "Time runnable threads of the cgroup waited for a CPU, measured as a whole",
    ),
    _c("cpu.wait_count", "cgroup_cpu_waits", Unit.COUNT, "Run-queue waits that ended"),
    *(_c(f"cpu.wait_{cause}_ns", "cgroup_cpu_wait", Unit.NS, _WAIT, cause=cause) for cause in WAIT_CAUSES),
    _h("cpu.wait_hist", "cgroup_cpu_wait_duration", Unit.NS, "Distribution of run-queue waits"),
    _c(
        "cpu.involuntary_switches",
        "cgroup_cpu_involuntary_switches",
        Unit.COUNT,
        "Switches away from a thread that could go on",
    ),
    _c(
        "cpu.blame_ns",
        "cgroup_cpu_blame",
        Unit.NS,
        "Run-queue wait of a victim while the culprit ran",
        table="cpu.blame",
    ),
)
"""The table. Column names are unique."""

BY_COLUMN: Mapping[str, Metric] = {metric.column: metric for metric in METRICS}
