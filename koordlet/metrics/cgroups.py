"""Columns of cgroups and the host as Prometheus series, with a hard bound.

Each cgroup that is exported adds its own growth to its own series; the growth of all others goes to `other`, so
sums stay whole and no counter ever falls. The exported set follows activity with hysteresis.

A tick only keeps its frame, and of cgroups that are gone their last rows. What counters grew by is added, and the
exported set chosen, where a scrape asks, or after some ticks without one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as PrometheusCollector

from api.cgroup_path import ROOT
from api.frame import CGROUP, HOST, KERNEL_ID, CgroupInfo, Frame, Table
from api.histogram import SLOTS, UPPER_EDGES_NS
from api.loss import lost_ns, total_lost_ns
from api.metrics import BY_COLUMN, Metric, MetricKind
from api.window import Delta, subtract
from detector.breaks import Between, no_breaks
from koordlet.config import MetricsSettings
from koordlet.metrics.inflicted import Inflicted
from koordlet.metrics.labels import (
    CGROUP_LABELS,
    CULPRIT,
    NO_POD,
    VICTIM,
    Labels,
    distinct,
    identity_of,
    short,
    without_empty,
)
from koordlet.metrics.owners import owners
from koordlet.metrics.pair_totals import PairTotals
from koordlet.snapshot.document import KERNEL_PATH
from koordlet.tick import Tick

OTHER = "other"
_BUCKETS = tuple(range(4, 18))
"""Slots whose upper edge gets a bucket: 16 us to 134 ms, then +Inf."""
_DECAY = 0.9
"""Part of a cgroup's activity that counts a tick later."""
_CHOOSE_EVERY = 15
"""Ticks after which series are given anew where cgroups came, went or are more than have series."""

_OTHER_CULPRIT: Labels = (*NO_POD, OTHER)
_OTHER_LABELS: Labels = (*NO_POD, OTHER, OTHER, "")


InfoOf = Callable[[int], CgroupInfo | None]
"""Description of a living or recently removed cgroup by its id."""


Emptied = tuple[int, Labels]
"""A seat whose series end, and the labels that they had."""


class _Seats:
    """Cgroups with series of their own: a seat number each, 0 for all others."""

    def __init__(self, count: int) -> None:
        self.labels: dict[int, Labels] = {0: _OTHER_LABELS}
        self.seat_of: dict[int, int] = {}
        self.count = count
        self._free = list(range(count, 0, -1))
        self._activity: dict[int, float] = {}

    def part(self, cgroups: Sequence[CgroupInfo]) -> list[Emptied]:
        """Empty the seats of all but these cgroups."""
        alive = {info.id for info in cgroups}
        return [self._leave(identity) for identity in list(self.seat_of) if identity not in alive]

    def choose(self, cgroups: Sequence[CgroupInfo], score: Mapping[int, float], ticks: int) -> list[Emptied]:
        """Give seats to the busiest; only a clearly busier cgroup replaces the quietest. Return emptied seats.

        `score` is the activity by id over the `ticks` since the last choice. All that have seats are among the cgroups.
        """
        alive = {info.id: info for info in cgroups}
        emptied = []
        remembered, kept = self._activity, _DECAY**ticks
        self._activity = {
            identity: remembered.get(identity, 0.0) * kept + score.get(identity, 0.0) for identity in alive
        }
        waiting = sorted((i for i in alive if i not in self.seat_of), key=self._activity.__getitem__, reverse=True)
        for identity in waiting:
            if not self._free:
                quietest = min(self.seat_of, key=self._activity.__getitem__)
                if self._activity[identity] <= 2 * self._activity[quietest] + 1e6:
                    break
                emptied.append(self._leave(quietest))
            self._take(alive[identity])
        return emptied

    def welcome(self, cgroups: Iterable[CgroupInfo]) -> None:
        """Give seats that are free to cgroups that are new."""
        for info in cgroups:
            if self._free and info.id not in self.seat_of:
                self._take(info)

    def has_name_of(self, cgroups: Iterable[CgroupInfo]) -> bool:
        """Return whether one of the seats has the labels that a cgroup would have, as of a container's predecessor."""
        taken = {labels[:4] for labels in self.labels.values()}
        return any(identity_of(info) in taken for info in cgroups)

    def _take(self, info: CgroupInfo) -> None:
        seat = self.seat_of[info.id] = self._free.pop()
        taken = {labels[:4] for labels in self.labels.values()}
        self.labels[seat] = (*distinct(identity_of(info), info.path, taken), short(info.name), info.qos)

    def relabel(self, cgroups: Sequence[CgroupInfo]) -> list[Emptied]:
        """Give new labels to the cgroups that are known by other names now; return their seats, which start anew."""
        moved = []
        for info in cgroups:
            seat = self.seat_of.get(info.id)
            if seat is None or self.labels[seat][4:] == (short(info.name), info.qos):
                continue
            taken = {labels[:4] for other, labels in self.labels.items() if other != seat}
            before = self.labels[seat]
            self.labels[seat] = (*distinct(identity_of(info), info.path, taken), short(info.name), info.qos)
            moved.append((seat, before[:4]))
        return moved

    def _leave(self, identity: int) -> Emptied:
        seat = self.seat_of.pop(identity)
        self._free.append(seat)
        return seat, self.labels.pop(seat)[:4]


class CgroupMetrics(PrometheusCollector):
    """Series of cgroups and host: `update` takes each tick; `collect` may run in another thread."""

    def __init__(
        self,
        settings: MetricsSettings,
        info_of: InfoOf,
        build: Mapping[str, str],
        own: str = "",
        *,
        breaks: Callable[[], Between] = lambda: no_breaks,
    ) -> None:
        """`own` is the path of the agent's own cgroup; empty or the root's where it has none.

        `breaks` makes what is called between the parts of counting, in the thread that counts.
        """
        self._settings = settings
        self._breaks = breaks
        self._info_of = info_of
        self._build = dict(build)
        self._lock = Lock()
        self._seats = _Seats(settings.max_cgroups)
        self._last: Frame | None = None
        self._counted: dict[str, Table] = {}
        """Tables as far as their growth was added to the totals."""
        self._parted: dict[str, list[Table]] = defaultdict(list)
        """Last rows of cgroups that went since then, by table."""
        self._has_changed = True
        """Whether cgroups came or went, or are described anew, since the last choice of seats."""
        self._have_just_gone = False
        """Whether some went with the last frame, whose tables of blame can still have them."""
        self._chosen: Table | None = None
        """The dense table as of the last choice of seats, `_ticks` ago."""
        self._ticks = 0
        self._totals: dict[str, NDArray[np.float64]] = {}
        self._histograms: dict[str, NDArray[np.float64]] = {}
        """Counts and sum by seat; the last row is of cgroups that lost theirs, which count for the host."""
        self._histogram_seats: list[int] = []
        self._blame: dict[str, PairTotals] = defaultdict(
            lambda: PairTotals(settings.culprits_per_victim, _OTHER_CULPRIT)
        )
        self._own = own
        self._inflicted = Inflicted(settings.max_cgroups, self._is_own)
        self._capabilities: dict[str, int] = {}
        self._programs: list[tuple[str, str, float, int]] = []

    def update(
        self,
        tick: Tick,
        *,
        capabilities: Mapping[str, bool],
        programs: Iterable[tuple[str, str, float, int]] = (),
    ) -> None:
        """Take one tick. `programs` rows are (probe, program, run seconds, runs)."""
        first, last = tick.window.frames[0], tick.window.last
        with self._lock:
            if self._last is None:
                self._counted, self._chosen = dict(first.tables), first.cgroup
                self._seat(last)
            elif last.cgroups is not self._last.cgroups:
                self._follow(self._last, last)
            elif self._have_just_gone:
                self._part(self._last, last)
                self._have_just_gone = False
            self._last = last
            self._ticks += 1
            if self._ticks >= _CHOOSE_EVERY and (self._has_changed or len(last.cgroups) > self._seats.count):
                self._seat(last)
            self._capabilities = {name: int(able) for name, able in capabilities.items()}
            self._programs = list(programs)

    def _follow(self, before: Frame, after: Frame) -> None:
        """Keep the last rows of cgroups that are gone, and give newcomers the seats that are free.

        All seats are given anew where one is described otherwise, or comes under the name of one that has a seat.
        """
        self._has_changed = self._have_just_gone = True
        known = {info.id: info for info in before.cgroups}
        came = [info for info in after.cgroups if info.id not in known]
        if any(info is not known.get(info.id, info) for info in after.cgroups) or self._seats.has_name_of(came):
            self._seat(after)
        else:
            self._part(before, after)
            self._seats.welcome(came)

    def _part(self, before: Frame, after: Frame) -> None:
        """Keep the last rows of what `after` has no longer: a table of blame may have a victim for a frame more."""
        alive = after.cgroup.ids
        for name, table in before.tables.items():
            if name == CGROUP or name.endswith(".blame"):
                gone = np.flatnonzero(~np.isin(table.ids, alive))
                if len(gone) and name != CGROUP and name in after.tables:
                    gone = gone[~np.isin(table.ids[gone], after.tables[name].ids)]
                if len(gone):
                    self._parted[name].append(table.take(gone))

    def _seat(self, frame: Frame) -> None:
        """Give seats to the cgroups of a frame by what they did since the last choice."""
        self._count()  # before seats are emptied
        self._empty(self._seats.part(frame.cgroups))
        self._empty(self._seats.relabel(frame.cgroups))
        grown, _ = subtract(frame.cgroup, self._chosen) if self._chosen is not None else (frame.cgroup, 0)
        lost = total_lost_ns(lost_ns(Delta(grown, 1.0, 0)))
        oncpu = grown.columns.get("cpu.oncpu_ns", np.zeros(len(grown))).astype(np.float64)
        score = dict(zip(grown.ids.tolist(), (oncpu + (lost if len(lost) else 0)).tolist(), strict=True))
        self._empty(self._seats.choose(frame.cgroups, score, self._ticks))
        self._chosen, self._ticks, self._has_changed = frame.cgroup, 0, False
        limit = self._settings.histogram_cgroups
        self._histogram_seats = [seat for seat in self._histogram_seats if seat in self._seats.labels][:limit]
        for seat in self._seats.labels:
            if len(self._histogram_seats) >= limit:
                break
            if seat and seat not in self._histogram_seats:
                self._histogram_seats.append(seat)

    def _empty(self, seats: Iterable[Emptied]) -> None:
        """Drop the series of seats."""
        for seat, labels in seats:
            for totals in self._totals.values():
                totals[seat] = 0.0
            for rows in self._histograms.values():
                rows[-1] += rows[seat]
                rows[seat] = 0.0
            for pairs in self._blame.values():
                pairs.forget(seat, labels)
            self._inflicted.forget(seat)

    def _count(self) -> None:
        """Add what counters grew by since the last time, for the cgroups of the last frame and in their seats."""
        if self._last is None:
            return
        between = self._breaks()
        tables = self._last.tables
        if CGROUP in self._counted:
            for table in _joined([tables[CGROUP], *self._parted[CGROUP]]):
                grown, _ = subtract(table, self._counted[CGROUP])
                seats = self._seats_of(grown.ids)
                for metric in BY_COLUMN.values():
                    if metric.table == CGROUP and metric.family and metric.column in grown.columns:
                        between()
                        self._add(metric, grown, seats)
        for name in [name for name in tables.keys() | self._parted.keys() if name.endswith(".blame")]:
            # Apart, as a victim may have come again: what one table has of it is summed up.
            for table in (*([tables[name]] if name in tables else []), *_joined(self._parted[name])):
                between()
                if name in self._counted:
                    self._add_blame(name, subtract(table, self._counted[name])[0])
        self._counted |= tables
        self._parted.clear()

    def _seats_of(self, ids: NDArray[np.uint64]) -> NDArray[np.intp]:
        seat_of = self._seats.seat_of
        return np.array([seat_of.get(identity, 0) for identity in ids.tolist()], dtype=np.intp)

    def _add(self, metric: Metric, grown: Table, seats: NDArray[np.intp]) -> None:
        if metric.kind is MetricKind.GAUGE:
            return
        column = grown.columns[metric.column].astype(np.float64)
        if metric.kind is MetricKind.HISTOGRAM:
            rows = self._histograms.setdefault(metric.column, np.zeros((self._seats.count + 2, SLOTS + 1)))
            np.add.at(rows[:, :SLOTS], seats, column)
            if metric.sum_column in grown.columns:
                sums = grown.columns[metric.sum_column].astype(np.float64) * 1e-9
                np.add.at(rows[:, SLOTS], seats, np.nan_to_num(sums))
        else:
            totals = self._totals.setdefault(metric.column, np.zeros(self._seats.count + 1))
            np.add.at(totals, seats, np.nan_to_num(column) * metric.unit.scale)

    def _add_blame(self, name: str, grown: Table) -> None:
        seat_of = self._seats.seat_of
        amounts = next(iter(grown.columns.values())).astype(np.float64) * 1e-9
        self._inflicted.add(name, grown, amounts, seat_of)
        rows = np.flatnonzero(amounts > 0)
        victims, inverse = np.unique(grown.ids[rows], return_inverse=True)
        seats = np.array([seat_of.get(victim, 0) for victim in victims.tolist()], dtype=np.int64)
        culprits = grown.keys["culprit"][rows].astype(np.uint64)
        self._blame[name].add(seats[inverse], culprits, amounts[rows], self._victim_of, self._culprit_name)

    def _is_own(self, culprit: int) -> bool:
        if self._own in ("", ROOT):
            return False
        info = self._info_of(culprit)
        return info is not None and info.path == self._own

    def _victim_of(self, seat: int) -> Labels:
        return self._seats.labels[seat][:4]

    def _culprit_name(self, culprit: int) -> Labels:
        if culprit == KERNEL_ID:
            return (*NO_POD, KERNEL_PATH)
        info = self._info_of(culprit)
        return identity_of(info) if info else _OTHER_CULPRIT

    def collect(self) -> Iterator[Family]:
        """All families, in the order of the metric table. Series that are still zero are left out."""
        with self._lock:
            if self._last is not None and self._has_changed:
                self._seat(self._last)
            else:
                self._count()
            families: dict[str, Family] = {}
            for metric in BY_COLUMN.values():
                if metric.family:
                    self._emit(metric, families)
            families |= {family.name: family for family in self._inflicted.families(self._seats.labels)}
            families |= self._self_families()
        yield from map(without_empty, families.values())

    def _emit(self, metric: Metric, families: dict[str, Family]) -> None:
        if metric.kind is MetricKind.HISTOGRAM:
            self._emit_histogram(metric, families)
        elif metric.table.endswith(".blame"):
            self._emit_blame(metric, families)
        else:
            self._emit_plain(metric, families)

    def _emit_plain(self, metric: Metric, families: dict[str, Family]) -> None:
        on_cgroup = metric.table == CGROUP
        if on_cgroup and metric.kind is MetricKind.COUNTER:
            totals = self._totals.get(metric.column, np.empty(0))
            labels = self._seats.labels
            source = {labels[seat]: float(totals[seat]) for seat in np.flatnonzero(totals).tolist() if seat in labels}
        else:
            source = self._gauge(metric)
        if not source:
            return
        names: Labels = CGROUP_LABELS if on_cgroup else self._host_keys(metric)
        kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
        constant = sorted(metric.labels)
        family = families.setdefault(metric.series, kind(metric.series, metric.help, labels=(*names, *constant)))
        fixed = tuple(metric.labels[name] for name in constant)
        for key, value in source.items():
            family.add_metric((*key, *fixed), value)  # type: ignore[attr-defined]

    def _gauge(self, metric: Metric) -> dict[Labels, float]:
        """Values of the last frame, those of cgroups without a seat left out; empty where they were not measured."""
        table = self._last.tables.get(metric.table) if self._last is not None else None
        if self._last is None or table is None or metric.column not in table.columns:
            return {}
        values = table.columns[metric.column].astype(np.float64) * metric.unit.scale
        if metric.table == CGROUP:
            labels, seats = self._seats.labels, self._seats_of(self._last.cgroup.ids)
            shown = np.flatnonzero((seats > 0) & np.isfinite(values)).tolist()
            return {labels[int(seats[row])]: float(values[row]) for row in shown}
        if "cgroup" in table.keys:
            return {}
        keys = [table.keys[name] for name in sorted(table.keys)]
        return {tuple(str(key[row]) for key in keys): value for row, value in enumerate(values.tolist())}

    @staticmethod
    def _host_keys(metric: Metric) -> Labels:
        return () if metric.table == HOST else (metric.table.rpartition(".")[2],)

    def _emit_blame(self, metric: Metric, families: dict[str, Family]) -> None:
        family = CounterMetricFamily(metric.series, metric.help, labels=(*VICTIM, *CULPRIT))
        if metric.table in self._blame:
            for victim, culprit, value in self._blame[metric.table].items():
                family.add_metric((*victim, *culprit), value)
        if family.samples:
            families[metric.series] = family

    def _emit_histogram(self, metric: Metric, families: dict[str, Family]) -> None:
        rows = self._histograms.get(metric.column)
        if rows is None or not rows.any():
            return
        constant = sorted(metric.labels)
        fixed = tuple(metric.labels[name] for name in constant)
        labels = (*CGROUP_LABELS, *constant)
        for seat in self._histogram_seats:
            if rows[seat].any():
                family = families.setdefault(
                    metric.series, HistogramMetricFamily(metric.series, metric.help, labels=labels)
                )
                key = (*self._seats.labels[seat], *fixed)
                family.add_metric(key, _cumulative(rows[seat]), float(rows[seat, SLOTS]))  # type: ignore[attr-defined]
        node = metric.series.replace("_cgroup_", "_host_")
        host = families.setdefault(
            node,
            HistogramMetricFamily(node, f"{metric.help}, all exported cgroups and the rest together", labels=constant),
        )
        total = rows.sum(axis=0)
        host.add_metric(fixed, _cumulative(total), float(total[SLOTS]))  # type: ignore[attr-defined]

    def _self_families(self) -> dict[str, Family]:
        build = GaugeMetricFamily("koord_build_info", "Version of the agent", labels=tuple(self._build))
        build.add_metric(tuple(self._build.values()), 1.0)
        able = GaugeMetricFamily("koord_capability", "1 where this host can measure it", labels=("name",))
        for name, value in self._capabilities.items():
            able.add_metric((name,), value)
        lost = CounterMetricFamily("koord_lost_events", "Events that were lost, by source", labels=("source",))
        for place, count in (self._last.lost if self._last is not None else {}).items():
            lost.add_metric((place,), count)
        exported = GaugeMetricFamily("koord_exported_cgroups", "Cgroups with series of their own")
        exported.add_metric((), len(self._seats.seat_of))
        names = ("probe", "program")
        seconds = CounterMetricFamily(
            "koord_bpf_run_seconds", "Time spent in BPF programs, while kernel.bpf_stats_enabled is on", labels=names
        )
        runs = CounterMetricFamily(
            "koord_bpf_runs", "Runs of BPF programs, while kernel.bpf_stats_enabled is on", labels=names
        )
        for probe, program, run_seconds, count in self._programs:
            seconds.add_metric((probe, program), run_seconds)
            runs.add_metric((probe, program), count)
        cgroups = self._last.cgroups if self._last is not None else ()
        owned = owners(info for info in cgroups if info.id in self._seats.seat_of)
        return {family.name: family for family in (build, able, lost, exported, owned, seconds, runs)}


def _joined(tables: Iterable[Table]) -> list[Table]:
    """The tables as one, or as few as have the same columns."""
    alike: dict[tuple[str, ...], list[Table]] = {}
    for table in tables:
        if len(table):
            alike.setdefault((*table.keys, *table.columns), []).append(table)
    return [parts[0] if len(parts) == 1 else _concatenated(parts) for parts in alike.values()]


def _concatenated(tables: Sequence[Table]) -> Table:
    return Table(
        {name: np.concatenate([table.keys[name] for table in tables]) for name in tables[0].keys},
        {name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns},
    )


def _cumulative(row: NDArray[np.float64]) -> list[tuple[str, float]]:
    """Prometheus buckets: `le` in seconds at the upper edge of the slot, counts cumulative, ending in +Inf."""
    counted = row[:SLOTS].cumsum()
    buckets = [(repr(float(UPPER_EDGES_NS[slot]) * 1e-9), float(counted[slot])) for slot in _BUCKETS]
    return [*buckets, ("+Inf", float(counted[-1]))]
