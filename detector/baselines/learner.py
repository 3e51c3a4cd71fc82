"""Baselines of workloads: robust quantiles of each signal, by workload, node type and load.

`Baselines.learn` takes samples, `Baselines.judge` returns how far values lie above the usual and on how much
evidence. Load is the request rate where one is seen and the cpu demand elsewhere, in octaves: a surge of own load
is compared with other surges. Where a load was never seen, the next higher octave may answer, which errs towards
silence; a lower one never does. Samples taken during verdicts are the caller's to exclude; which of the others teach is
`detector/baselines/levels.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from detector.baselines.cells import Cells
from detector.baselines.levels import NEAR_OCTAVES, middle_octave, middle_octaves, octaves_of
from detector.baselines.sketch import BUCKETS, RESOLUTION, UPPER_EDGES, bucket_of, quantiles
from detector.baselines.values import (
    LOWEST_OCTAVE,
    OCTAVES,
    BaselinePolicy,
    BaselineSample,
    BaselineState,
    CellRecord,
    Judgement,
    LoadKind,
    ToldTime,
    WorkloadKey,
)

_QUANTILES = (0.5, 0.75, 0.99)
_EXTREME = 0.999
_LEAST_TAIL = 3.0
"""Samples that lie above the extreme quantile at least: the one tick in which a loss begins, before its verdict opens,
is learned and must not be the tail."""
_TAIL = 10.0
"""Samples above the lower of the two quantiles by which the tail goes on, half of them at most."""
_LEAST_SAMPLES = 10.0
"""Aged weight from which the extreme quantile is told, long before a baseline may judge."""
_MOST_BEYOND = 2.0
"""The extreme quantile of fewer than 3,000 samples is at most so many times the highest that is taken from them."""
_YOUNG_GROWTH = 0.3
"""Growth, as `_REFRESH_GROWTH`, of cells that may not judge yet."""
_WIDTH = len(_QUANTILES) + 1
_QUARTILE_SIGMAS = 0.6745
"""Upper quartile of a normal distribution in standard deviations."""
_REFRESH_ROWS = 512
"""Rows whose quantiles one judgement brings up to date; bounds its time while many workloads warm up together."""
_REFRESH_GROWTH = 0.1
"""Quantiles are made anew when this share of the weight is newer than they are."""


class Baselines:
    """All baselines of a node. Times are wall-clock seconds, because baselines outlive the agent."""

    def __init__(self, policy: BaselinePolicy | None = None) -> None:
        self.policy = policy or BaselinePolicy()
        self.refused = 0
        """Samples that found no room."""
        self.told: tuple[ToldTime, ...] = ()
        """Of an earlier run's verdicts, until a judge takes them over."""
        self.cells = Cells(self.policy.half_life_seconds, 2 * OCTAVES, self.policy.period_seconds)
        self.workloads: dict[WorkloadKey, int] = {}
        """Number of each workload in the cells."""
        self.signals: dict[str, int] = {}
        """Number of each signal in the cells."""
        self.quantiles: NDArray[np.float64] = np.full((0, _WIDTH), np.nan)
        """Of each cell, as of when it had `refreshed` samples."""
        self.refreshed: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._last_keys: tuple[Sequence[WorkloadKey], NDArray[np.int64]] = ((), np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return self.cells.count

    def ready_count(self, now_seconds: float) -> int:
        """Cells that have seen enough to judge by; the others are warming up."""
        return int(self._warm(np.arange(self.cells.count, dtype=np.int32), now_seconds).sum())

    def learn(
        self,
        seen: BaselineSample,
        now_seconds: float,
        excluded: NDArray[np.bool_] | None = None,
        accepted: NDArray[np.bool_] | None = None,
        unusual: NDArray[np.bool_] | None = None,
        told: NDArray[np.bool_] | None = None,
    ) -> None:
        """Take one sample of each measured signal of each container that is not `excluded`.

        Those of a stretch above the ordinary level are not counted, unless the container is `accepted` as it is. What
        an excluded replica shows is no part of the level that the others of its workload learn by. One that is told as
        `unusual` teaches where a level was accepted, and nothing above that. Of surroundings, where any level is
        learned, no more is left out than what is `told`: a single tick above a threshold is a part of their tail.
        """
        self.cells.advance(now_seconds)
        known = np.isfinite(seen.load)
        admitted = known if excluded is None else known & ~excluded
        around = admitted if told is None else known & ~told
        none = np.zeros(len(known), dtype=np.bool_)
        usual, doubted = none if accepted is None else accepted, none if unusual is None else unusual
        workloads = self._workload_ids(seen.keys, create=True)
        by_load = _bins(seen)
        for signal, values in seen.values.items():
            bins = np.zeros_like(by_load) if signal in seen.at_any_load else by_load
            measured = np.isfinite(values)
            free = signal in seen.surroundings
            may_teach = around if free else admitted
            take = may_teach & measured & ~doubted
            number = self.signals.setdefault(signal, len(self.signals)) if take.any() else self.signals.get(signal)
            if number is None:
                continue
            self.cells.make(workloads[take], number, bins[take], self.policy.max_cells)
            rows = self.cells.find(workloads, number, bins)
            self.refused += int((take & (rows < 0)).sum())
            octaves = octaves_of(values)
            take = may_teach & measured & (rows >= 0)
            take &= ~doubted | self.cells.levels.accept(rows, octaves, now_seconds)
            looked = take | (known & measured & (rows >= 0) & ~self._has_any(rows, rows[take]))
            self.cells.levels.see(rows[looked], octaves[looked])
            take[take] = self._teaching(rows[take], usual[take], now_seconds, free=free)
            self.cells.add(rows[take], bucket_of(values[take]), now_seconds)
        self._extend_quantiles()

    def _has_any(self, rows: NDArray[np.int32], wanted: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which rows are among the wanted ones; a row of -1 never is."""
        among = np.zeros(self.cells.count + 1, dtype=np.bool_)
        among[wanted] = True
        return np.asarray(among[rows], dtype=np.bool_)

    def _teaching(
        self, rows: NDArray[np.int32], accepted: NDArray[np.bool_], now_seconds: float, *, free: bool
    ) -> NDArray[np.bool_]:
        """Return which rows may teach; those that have to start anew forget what they knew."""
        ready = self._warm(rows, now_seconds) & (not free)
        levels = self.cells.levels
        fresh = levels.unsettled(rows, ready)
        if len(fresh):
            levels.settle(fresh, middle_octaves(self.cells.counts[fresh]), now_seconds)
        teaching, anew = levels.admit(rows, ready, accepted, now_seconds)
        self._restart(anew)
        return teaching

    def _restart(self, rows: NDArray[np.int32]) -> None:
        if len(rows):
            self._extend_quantiles()
            self.cells.restart(rows)
            self.refreshed[rows] = 0

    def judge(self, seen: BaselineSample, now_seconds: float) -> Mapping[str, Judgement]:
        """Judge each signal against its baselines; learn nothing. A load of NaN is judged as UNKNOWN."""
        self._refresh(now_seconds, _REFRESH_ROWS)
        workloads = np.where(np.isfinite(seen.load), self._workload_ids(seen.keys, create=False), -1)
        by_load = _bins(seen)
        one = np.zeros_like(by_load)
        return {
            signal: self._judge_signal(
                values, workloads, one if signal in seen.at_any_load else by_load, self.signals.get(signal), now_seconds
            )
            for signal, values in seen.values.items()
        }

    def records(self, now_seconds: float) -> tuple[CellRecord, ...]:
        """Records of all cells, sorted by key, signal and load, for export, file and merge."""
        cells = self.cells
        scale = 1.0 / cells.weight_at(now_seconds)
        keys, signals, levels = list(self.workloads), list(self.signals), cells.levels.columns
        records = []
        for row in range(cells.count):
            workload, signal, place = (int(number) for number in cells.place[row])
            used = np.flatnonzero(cells.counts[row])
            kind, octave = divmod(place, OCTAVES)
            record = CellRecord(
                key=keys[workload],
                signal=signals[signal],
                load_kind=LoadKind(kind),
                octave=octave + LOWEST_OCTAVE,
                samples=int(cells.samples[row]),
                weight=float(cells.mass[row]) * scale,
                first_seconds=float(cells.first[row]),
                last_seconds=float(cells.last[row]),
                buckets=tuple(used.tolist()),
                counts=tuple((cells.counts[row, used] * np.float32(scale)).tolist()),
                ordinary_octave=float(levels["ordinary"][row]),
                kept_until_seconds=float(levels["kept_until"][row]),
                fall=float(levels["fall"][row]),
                falls=float(levels["falls"][row]),
            )
            records.append(record)
        return tuple(sorted(records, key=_record_order))

    def absorb(self, records: Iterable[CellRecord], now_seconds: float) -> None:
        """Add cells whose weights are as of `now_seconds`, from a file or another node."""
        self.cells.advance(now_seconds)
        weight = self.cells.weight_at(now_seconds)
        for record in records:
            workload = self._workload_ids([record.key], create=True)
            number = self.signals.setdefault(record.signal, len(self.signals))
            place = np.array([int(record.load_kind) * OCTAVES + record.octave - LOWEST_OCTAVE])
            if self.cells.make(workload, number, place, self.policy.max_cells):
                self.refused += record.samples
                continue
            row = int(self.cells.find(workload, number, place)[0])
            _add_record(self.cells, row, record, weight)
            if len(record.buckets):
                warm = record.weight >= self.policy.warm_samples
                level = (
                    middle_octave(self.cells.counts[row]) if record.ordinary_octave is None else record.ordinary_octave
                )
                periods = self.policy.warm_periods if warm else 1
                self.cells.levels.begin(row, level, periods, record.kept_until_seconds, now_seconds)
                self.cells.levels.add_falls(row, record.fall, record.falls)
        self.refreshed[:] = 0
        self._refresh(now_seconds, self.cells.count)

    def borrow(self, records: Sequence[CellRecord], now_seconds: float) -> int:
        """Add those of the cells that are not warm here, at twice the weight from which they judge; return how many.

        One that is warm and lies far above, and that began so lately that it has known nothing but a slow start, is
        replaced.
        """
        weight = 2 * self.policy.warm_samples
        wanted = [
            replace(record, weight=weight, counts=tuple(count * part for count in record.counts))
            for record in records
            if record.weight >= self.policy.warm_samples and self._is_better(record, now_seconds)
            for part in (weight / record.weight,)
        ]
        if wanted:
            self._restart(np.array([row for row in map(self._row_of, wanted) if row >= 0], dtype=np.int32))
            self.absorb(wanted, now_seconds)
        return len(wanted)

    def _row_of(self, record: CellRecord) -> int:
        workload, signal = self.workloads.get(record.key), self.signals.get(record.signal)
        if workload is None or signal is None:
            return -1
        place = int(record.load_kind) * OCTAVES + record.octave - LOWEST_OCTAVE
        return int(self.cells.find(np.array([workload]), signal, np.array([place]))[0])

    def _is_better(self, record: CellRecord, now_seconds: float) -> bool:
        row = self._row_of(record)
        if row < 0 or not self._warm(np.array([row], dtype=np.int32), now_seconds)[0]:
            return True
        counts = np.zeros(BUCKETS)
        counts[list(record.buckets)] = record.counts
        above = self.cells.levels.columns["ordinary"][row] - middle_octave(counts)
        return bool(now_seconds - self.cells.first[row] < self.policy.exclude_seconds and above > NEAR_OCTAVES)

    def _warm(self, rows: NDArray[np.int32], now_seconds: float) -> NDArray[np.bool_]:
        """Return which cells have enough samples, of enough periods, to judge by."""
        weights = self.cells.mass[rows] / self.cells.weight_at(now_seconds)
        periods = self.cells.levels.columns["periods"][rows]
        return (weights >= self.policy.warm_samples) & (periods >= self.policy.warm_periods)

    def age(self, now_seconds: float) -> None:
        """Let time pass without samples, as after a restart; a clock that ran backwards ages nothing."""
        self.cells.advance(now_seconds)

    def forget(self, now_seconds: float) -> int:
        """Drop faded cells, such as those of workloads long gone, and workloads without any; return the number of
        cells. Meant to be called seldom."""
        cells = self.cells
        weights = cells.mass[: cells.count] / cells.weight_at(now_seconds)
        rows = np.flatnonzero(weights >= self.policy.forget_weight)
        forgotten = cells.count - len(rows)
        if forgotten or len(np.unique(cells.place[: cells.count, 0])) < len(self.workloads):
            self._extend_quantiles()
            self.refreshed, self.quantiles = self.refreshed[rows], self.quantiles[rows]
            keys = list(self.workloads)
            self.workloads = {keys[old]: new for new, old in enumerate(cells.keep(rows).tolist())}
            self._last_keys = ((), np.zeros(0, dtype=np.int64))
        return forgotten

    def _workload_ids(self, keys: Sequence[WorkloadKey], *, create: bool) -> NDArray[np.int64]:
        if keys is self._last_keys[0]:
            return self._last_keys[1]
        if create:
            for key in keys:
                self.workloads.setdefault(key, len(self.workloads))
        known = self.workloads
        numbers = np.fromiter((known.get(key, -1) for key in keys), dtype=np.int64, count=len(keys))
        if isinstance(keys, tuple) and (numbers >= 0).all():
            self._last_keys = (keys, numbers)
        return numbers

    def _judge_signal(
        self,
        values: NDArray[np.float64],
        workloads: NDArray[np.int64],
        bins: NDArray[np.int64],
        signal: int | None,
        now_seconds: float,
    ) -> Judgement:
        own = self._find(workloads, signal, bins)
        higher = np.where(bins % OCTAVES < OCTAVES - 1, bins + 1, bins)
        next_up = self._find(workloads, signal, higher)
        own_ready, next_ready = self._ready(own, now_seconds), self._ready(next_up, now_seconds)
        borrowed = ~own_ready & next_ready
        rows = np.where(borrowed, next_up, own)
        state = np.where(own >= 0, int(BaselineState.WARMING_UP), int(BaselineState.UNKNOWN))
        state[own_ready] = BaselineState.READY
        state[borrowed] = BaselineState.BORROWED
        return self._describe(values, rows, state, now_seconds)

    def _find(self, workloads: NDArray[np.int64], signal: int | None, bins: NDArray[np.int64]) -> NDArray[np.int32]:
        if signal is None:
            return np.full(len(workloads), -1, dtype=np.int32)
        return self.cells.find(workloads, signal, bins)

    def _ready(self, rows: NDArray[np.int32], now_seconds: float) -> NDArray[np.bool_]:
        if not self.cells.count:
            return np.zeros(len(rows), dtype=np.bool_)
        return (rows >= 0) & self._warm(rows, now_seconds) & (self.refreshed[rows] > 0)

    def _describe(
        self, values: NDArray[np.float64], rows: NDArray[np.int32], state: NDArray[np.int64], now_seconds: float
    ) -> Judgement:
        answered = state >= BaselineState.READY
        exists = rows >= 0
        picked = np.full((len(rows), _WIDTH), np.nan)
        picked[answered] = self.quantiles[rows[answered]]
        expected, quartile, upper, extreme = picked.T
        told = exists.copy()
        told[exists] = self.refreshed[rows[exists]] > 0
        extreme[told] = self.quantiles[rows[told], -1]
        # A level that was accepted is usual at once, and not when the sketch of many days has enough of it. It scatters
        # as widely as what was learned.
        levels = self.cells.levels
        kept = answered & levels.are_kept(rows, now_seconds)
        scatter = np.minimum(upper[kept] / np.maximum(expected[kept], UPPER_EDGES[0]), 2.0**NEAR_OCTAVES)
        upper[kept] = np.maximum(upper[kept], np.exp2(levels.columns["ordinary"][rows[kept]]) * scatter)
        wander = expected[answered] * np.exp2(levels.reach(rows[answered]))
        upper[answered] = np.maximum(upper[answered], wander)
        spread = np.maximum((quartile - expected) / _QUARTILE_SIGMAS, expected * RESOLUTION)
        spread = np.maximum(spread, UPPER_EDGES[0])
        score = (values - expected) / spread
        samples = np.zeros(len(rows), dtype=np.int64)
        samples[exists] = self.cells.samples[rows[exists]]
        age = np.full(len(rows), np.nan)
        age[exists] = now_seconds - self.cells.first[rows[exists]]
        return Judgement(expected, spread, upper, score, state, samples, age, extreme)

    def remake_quantiles(self) -> None:
        """Make the quantiles of all cells that hold enough samples anew from their sketches."""
        count = self.cells.count
        self.refreshed = np.zeros(count, dtype=np.int64)
        self.quantiles = np.full((count, _WIDTH), np.nan)
        self._refresh(self.cells.landmark, count)

    def _extend_quantiles(self) -> None:
        """As many rows of quantiles as there are of counts."""
        missing = len(self.cells.mass) - len(self.refreshed)
        if missing:
            self.refreshed = np.concatenate([self.refreshed, np.zeros(missing, dtype=np.int64)])
            self.quantiles = np.concatenate([self.quantiles, np.full((missing, _WIDTH), np.nan)])

    def _refresh(self, now_seconds: float, limit: int) -> None:
        """Recompute the quantiles of the rows that grew most since theirs were made, at most `limit`."""
        cells = self.cells
        self._extend_quantiles()
        weights = cells.mass[: cells.count] / cells.weight_at(now_seconds)
        refreshed = self.refreshed[: cells.count]
        fresh = np.where(refreshed > 0, cells.samples[: cells.count] - refreshed, np.inf)
        growth = fresh / np.maximum(weights, 1.0)
        least = np.where(weights >= self.policy.warm_samples, _REFRESH_GROWTH, _YOUNG_GROWTH)
        due = np.flatnonzero((weights >= min(_LEAST_SAMPLES, self.policy.warm_samples)) & (growth >= least))
        if len(due) > limit:
            due = due[np.argsort(-growth[due], kind="stable")[:limit]]
        self.quantiles[due] = _quantiles(cells.counts[due], weights[due])
        self.refreshed[due] = cells.samples[due]


def merge(parts: Iterable[Baselines], now_seconds: float, policy: BaselinePolicy | None = None) -> Baselines:
    """The baselines of several nodes as one; order does not matter beyond rounding."""
    merged = Baselines(policy)
    for part in parts:
        merged.absorb(part.records(now_seconds), now_seconds)
        merged.refused += part.refused
    return merged


def _quantiles(counts: NDArray[np.float32], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the quantiles of sketches that hold samples of these weights, shape (n, _WIDTH).

    Three samples lie above the highest that is taken from a sketch. Of sixty samples that is one in twenty, so the
    extreme quantile is found on an exponential tail through it and through the one that ten lie above.
    """
    tails = np.clip(_LEAST_TAIL / weights, 1.0 - _EXTREME, _LEAST_TAIL / _LEAST_SAMPLES)
    wider = np.clip(_TAIL / weights, tails * 1.5, 0.5)
    found = quantiles(counts, (*_QUANTILES, 1.0 - wider, 1.0 - tails))
    lower, highest = found[:, -2], found[:, -1]
    beyond = np.log(tails / (1.0 - _EXTREME)) / np.log(wider / tails)
    extreme = np.minimum(highest + (highest - lower) * beyond, _MOST_BEYOND * highest)
    return np.column_stack([found[:, : len(_QUANTILES)], extreme])


def _bins(seen: BaselineSample) -> NDArray[np.int64]:
    load = np.where(np.isfinite(seen.load), np.maximum(seen.load, 2.0**LOWEST_OCTAVE), 2.0**LOWEST_OCTAVE)
    octaves = np.clip(np.floor(np.log2(load)) - LOWEST_OCTAVE, 0, OCTAVES - 1)
    return np.asarray(seen.load_kind * OCTAVES + octaves.astype(np.int64), dtype=np.int64)


def _record_order(record: CellRecord) -> tuple[str, str, str, str, int, int]:
    key = record.key
    return key.workload, key.container, key.node_type, record.signal, int(record.load_kind), record.octave


def _add_record(cells: Cells, row: int, record: CellRecord, weight: float) -> None:
    if not len(record.buckets):
        return
    buckets = np.asarray(record.buckets, dtype=np.int64)
    if buckets.min() < 0 or buckets.max() >= BUCKETS:
        raise ValueError(f"baseline of {record.key.workload}, {record.signal}: a bucket is outside 0..{BUCKETS - 1}")
    cells.counts[row, buckets] += (np.asarray(record.counts) * weight).astype(np.float32)
    cells.mass[row] += record.weight * weight
    first = cells.first[row] if cells.samples[row] else record.first_seconds
    cells.first[row] = min(first, record.first_seconds)
    cells.samples[row] += record.samples
    cells.last[row] = max(cells.last[row], record.last_seconds)
