"""Prometheus text from frames, with a hard bound on series.

Each cgroup that is exported adds its own growth to its own series; everybody else's growth goes to `other`, so
sums stay whole and no counter ever falls. The exported set follows activity with hysteresis.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as PrometheusCollector

from api.frame import CGROUP, HOST, KERNEL_ID, CgroupInfo
from api.histogram import SLOTS, UPPER_EDGES_NS
from api.loss import lost_ns, total_lost_ns
from api.metrics import METRICS, Kind, Metric
from api.window import Delta, Window
from koordlet.config import ExpositionSettings
from koordlet.snapshot import KERNEL_PATH, PathOf

OTHER = "other"
_BUCKETS = tuple(range(4, 18))
"""Slots whose upper edge gets a bucket: 16 us to 134 ms, then +Inf."""
_DECAY = 0.9

Labels = tuple[str, ...]


@dataclass(slots=True)
class _Totals:
    """Running totals of one family: label values to number."""

    values: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class _Buckets:
    """Running histogram of one label set."""

    slots: NDArray[np.float64] = field(default_factory=lambda: np.zeros(SLOTS))
    total_seconds: float = 0.0


class Exposition(PrometheusCollector):
    """Takes each new pair of frames by `update`; Prometheus asks `collect`. The two may run in different threads."""

    def __init__(self, settings: ExpositionSettings, path_of: PathOf, build: Mapping[str, str]) -> None:
        self._settings = settings
        self._path_of = path_of
        self._build = dict(build)
        self._lock = Lock()
        self._activity: dict[int, float] = {}
        self._exported: dict[int, Labels] = {}
        self._families: dict[str, _Totals] = defaultdict(_Totals)
        self._histograms: dict[str, dict[Labels, _Buckets]] = defaultdict(lambda: defaultdict(_Buckets))
        self._gauges: dict[str, dict[Labels, float]] = {}
        self._blame: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._lost: dict[str, int] = {}
        self._capabilities: dict[str, int] = {}
        self._programs: list[tuple[str, str, float, int]] = []

    def update(
        self, window: Window, *, capabilities: Mapping[str, bool], programs: Iterable[tuple[str, str, float, int]] = ()
    ) -> None:
        """Add the growth between the last two frames. `programs` rows are (probe, program, run seconds, runs)."""
        pair = Window(window.frames[-2:])
        delta = pair.delta()
        with self._lock:
            self._choose(pair.cgroups, delta)
            labels = [self._exported.get(info.id, (OTHER, OTHER, "")) for info in pair.cgroups]
            for metric in METRICS:
                if metric.table == CGROUP and metric.family and metric.column in delta.table.columns:
                    self._add(metric, delta, labels)
            self._add_host(pair)
            for table in [name for name in pair.last.tables if name.endswith(".blame")]:
                self._add_blame(pair, table)
            self._lost = dict(pair.last.lost)
            self._capabilities = {name: int(able) for name, able in capabilities.items()}
            self._programs = list(programs)

    def _choose(self, cgroups: tuple[CgroupInfo, ...], delta: Delta) -> None:
        """Keep the busiest exported; a newcomer replaces the quietest only when it is clearly busier."""
        lost = total_lost_ns(lost_ns(delta))
        oncpu = delta.table.columns.get("cpu.oncpu_ns", np.zeros(len(cgroups)))
        score = (lost if len(lost) else np.zeros(len(cgroups))) + oncpu.astype(np.float64)
        alive = {info.id: info for info in cgroups}
        for gone in [identity for identity in self._exported if identity not in alive]:
            self._drop(gone)
        self._activity = {
            info.id: self._activity.get(info.id, 0.0) * _DECAY + float(value)
            for info, value in zip(cgroups, score, strict=True)
        }
        waiting = sorted((i for i in alive if i not in self._exported), key=self._activity.__getitem__, reverse=True)
        for identity in waiting:
            if len(self._exported) >= self._settings.max_cgroups:
                quietest = min(self._exported, key=self._activity.__getitem__)
                if self._activity[identity] <= 2 * self._activity[quietest] + 1e6:
                    break
                self._drop(quietest)
            info = alive[identity]
            self._exported[identity] = (info.path, info.name, info.qos)

    def _drop(self, identity: int) -> None:
        labels = self._exported.pop(identity)
        for totals in self._families.values():
            for key in [key for key in totals.values if key[:3] == labels]:
                del totals.values[key]
        for histogram in self._histograms.values():
            histogram.pop(labels, None)
        for pairs in self._blame.values():
            for key in [key for key in pairs if key[0] == labels[0]]:
                del pairs[key]

    def _add(self, metric: Metric, delta: Delta, labels: list[Labels]) -> None:
        column = delta.table.columns[metric.column]
        if metric.kind is Kind.HISTOGRAM:
            self._add_histogram(metric, delta, labels)
            return
        values = column.astype(np.float64) * metric.unit.scale
        constant = tuple(metric.labels[name] for name in sorted(metric.labels))
        if metric.kind is Kind.GAUGE:
            self._gauges[metric.column] = {
                (*key, *constant): float(value)
                for key, value in zip(labels, values, strict=True)
                if key[0] != OTHER and np.isfinite(value)
            }
            return
        totals = self._families[metric.column].values
        for key, value in zip(labels, values.tolist(), strict=True):
            if value > 0 or key[0] != OTHER:
                totals[(*key, *constant)] += value if value == value else 0.0

    def _add_histogram(self, metric: Metric, delta: Delta, labels: list[Labels]) -> None:
        slots = delta.table.columns[metric.column].astype(np.float64)
        sums = delta.table.columns.get(metric.sum_column)
        seconds = sums.astype(np.float64) * 1e-9 if sums is not None else np.zeros(len(slots))
        histograms = self._histograms[metric.column]
        whole = histograms[("", "", "")]
        whole.slots += slots.sum(axis=0)
        whole.total_seconds += float(np.nansum(seconds))
        ranked = sorted(self._exported, key=self._activity.__getitem__, reverse=True)
        chosen = {self._exported[identity] for identity in ranked[: self._settings.histogram_cgroups]}
        for row, key in enumerate(labels):
            if key in chosen or key in histograms:
                histograms[key].slots += slots[row]
                histograms[key].total_seconds += float(seconds[row])

    def _add_host(self, pair: Window) -> None:
        for metric in METRICS:
            if metric.table == CGROUP or metric.table not in pair.last.tables or not metric.family:
                continue
            table = pair.last.tables[metric.table]
            if (
                metric.column not in table.columns
                or metric.table.endswith(".blame")
                or table.columns[metric.column].ndim != 1
            ):
                continue
            if "cgroup" in table.keys:
                continue
            constant = tuple(metric.labels[name] for name in sorted(metric.labels))
            keys = sorted(table.keys)
            values = table.columns[metric.column].astype(np.float64) * metric.unit.scale
            found = {}
            for row, value in enumerate(values.tolist()):
                found[(*(str(table.keys[name][row]) for name in keys), *constant)] = value
            self._gauges[metric.column] = found

    def _add_blame(self, pair: Window, name: str) -> None:
        grown = pair.delta(name).table
        amounts = next(iter(grown.columns.values())).astype(np.float64) * 1e-9
        pairs = self._blame[name]
        culprits = grown.keys["culprit"].tolist()
        for row, victim in enumerate(grown.ids.tolist()):
            if amounts[row] <= 0:
                continue
            victim_path = self._exported.get(victim, (OTHER,))[0]
            pairs[self._blame_labels(pairs, victim_path, culprits[row])] += float(amounts[row])

    def _blame_labels(self, pairs: Mapping[Labels, float], victim_path: str, culprit: int) -> Labels:
        culprit_path = KERNEL_PATH if culprit == KERNEL_ID else (self._path_of(culprit) or OTHER)
        wanted = (victim_path, culprit_path)
        if wanted in pairs:
            return wanted
        taken = sum(1 for key in pairs if key[0] == victim_path and key[1] != OTHER)
        full = taken >= self._settings.culprits_per_victim or victim_path == OTHER
        return (victim_path, OTHER) if full else wanted

    def collect(self) -> Iterator[Family]:
        """All families, in the order of the metric table."""
        with self._lock:
            families: dict[str, Family] = {}
            for metric in METRICS:
                if metric.family:
                    self._emit(metric, families)
            families |= self._self_families()
        yield from families.values()

    def _emit(self, metric: Metric, families: dict[str, Family]) -> None:
        constant = sorted(metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            self._emit_histogram(metric, families)
        elif metric.table.endswith(".blame"):
            family = families.setdefault(
                metric.series,
                CounterMetricFamily(metric.series, metric.help, labels=("victim_cgroup", "culprit_cgroup")),
            )
            for key, value in self._blame.get(metric.table, {}).items():
                family.add_metric(key, value)  # type: ignore[attr-defined]
        else:
            on_cgroup = metric.table == CGROUP
            names = ("cgroup", "name", "qos") if on_cgroup else self._host_keys(metric)
            source = (
                self._families[metric.column].values
                if on_cgroup and metric.kind is Kind.COUNTER
                else self._gauges.get(metric.column, {})
            )
            if not source:
                return
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = families.setdefault(metric.series, kind(metric.series, metric.help, labels=(*names, *constant)))
            for key, value in source.items():
                family.add_metric(key, value)  # type: ignore[attr-defined]

    @staticmethod
    def _host_keys(metric: Metric) -> Labels:
        return () if metric.table == HOST else (metric.table.rpartition(".")[2],)

    def _emit_histogram(self, metric: Metric, families: dict[str, Family]) -> None:
        histograms = self._histograms.get(metric.column)
        if not histograms:
            return
        labels = ("cgroup", "name", "qos", *sorted(metric.labels))
        constant = tuple(metric.labels[name] for name in sorted(metric.labels))
        family = families.setdefault(metric.series, HistogramMetricFamily(metric.series, metric.help, labels=labels))
        for key, buckets in histograms.items():
            if key[0] == "":
                continue
            family.add_metric((*key, *constant), _cumulative(buckets), buckets.total_seconds)  # type: ignore[attr-defined]
        node = metric.series.replace("_cgroup_", "_host_")
        whole = families.setdefault(
            node,
            HistogramMetricFamily(node, f"{metric.help}, all cgroups together", labels=tuple(sorted(metric.labels))),
        )
        buckets = histograms[("", "", "")]
        whole.add_metric(constant, _cumulative(buckets), buckets.total_seconds)  # type: ignore[attr-defined]

    def _self_families(self) -> dict[str, Family]:
        build = GaugeMetricFamily("koord_build_info", "Version of the agent", labels=tuple(self._build))
        build.add_metric(tuple(self._build.values()), 1.0)
        able = GaugeMetricFamily("koord_capability", "1 where this host can measure it", labels=("name",))
        for name, value in self._capabilities.items():
            able.add_metric((name,), value)
        lost = CounterMetricFamily("koord_lost_events", "What could not be recorded, by place", labels=("place",))
        for place, count in self._lost.items():
            lost.add_metric((place,), count)
        exported = GaugeMetricFamily("koord_exported_cgroups", "Cgroups with series of their own")
        exported.add_metric((), len(self._exported))
        seconds = CounterMetricFamily(
            "koord_bpf_run_seconds",
            "Time spent in BPF programs (kernel.bpf_stats_enabled)",
            labels=("probe", "program"),
        )
        runs = CounterMetricFamily(
            "koord_bpf_runs", "Runs of BPF programs (kernel.bpf_stats_enabled)", labels=("probe", "program")
        )
        for probe, program, run_seconds, count in self._programs:
            seconds.add_metric((probe, program), run_seconds)
            runs.add_metric((probe, program), count)
        return {family.name: family for family in (build, able, lost, exported, seconds, runs)}


def _cumulative(buckets: _Buckets) -> list[tuple[str, float]]:
    """Prometheus buckets: `le` in seconds at the upper edge of the slot, counts cumulative, ending in +Inf."""
    counted = buckets.slots.cumsum()
    rows = [(repr(float(UPPER_EDGES_NS[slot]) * 1e-9), float(counted[slot])) for slot in _BUCKETS]
    return [*rows, ("+Inf", float(counted[-1]))]
