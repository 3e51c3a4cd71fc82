"""What only some containers need: rows that are made when they are first asked for. Pure.

Most containers never lose time to their own quota, and many never wait; those that do have a row of their own here.
"""

import numpy as np
from numpy.typing import NDArray

from controllers.recommend.usage import CPU_BUCKETS, CPU_SAMPLE_WEIGHT, HALF_LIFE_SECONDS
from detector.histograms import SINGLE_MAX_EXPONENT, Buckets, DecayingHistograms, Rows, Values

LEVELS = Buckets(maximum=1000.0, first=0.01, ratio=1.15)
"""Levels of CPU in cores, within which a wait counts as spread evenly."""
_NONE = -1


class RowsOnDemand:
    """Rows of those aggregates that have one; rows of aggregates that are gone are given again."""

    def __init__(self) -> None:
        self.count = 0
        """Rows that were ever given."""
        self._rows: NDArray[np.int32] = np.zeros(0, np.int32)
        self._free: list[int] = []

    @property
    def in_use(self) -> int:
        """Number of rows that aggregates have."""
        return self.count - len(self._free)

    def of(self, aggregates: Rows) -> Rows:
        """Return the row of each aggregate, -1 without one."""
        known = aggregates < len(self._rows)
        found = np.full(len(aggregates), _NONE, np.intp)
        found[known] = self._rows[aggregates[known]]
        return found

    def make(self, aggregates: Rows) -> Rows:
        """Give rows to distinct aggregates without one; return them."""
        size = int(aggregates.max(initial=-1)) + 1
        if size > len(self._rows):
            missing = max(size, len(self._rows) * 5 // 4) - len(self._rows)
            self._rows = np.concatenate([self._rows, np.full(missing, _NONE, np.int32)])
        again = [self._free.pop() for _ in range(min(len(self._free), len(aggregates)))]
        new = len(aggregates) - len(again)
        rows = np.array([*again, *range(self.count, self.count + new)], np.intp)
        self.count += new
        self._rows[aggregates] = rows
        return rows

    def drop(self, aggregate: int) -> int | None:
        """Take an aggregate's row; return it, None without one."""
        if aggregate >= len(self._rows) or self._rows[aggregate] == _NONE:
            return None
        row = int(self._rows[aggregate])
        self._rows[aggregate] = _NONE
        self._free.append(row)
        return row


class QuotaDemand:
    """Use plus time lost to the own quota in cores: what threads could have used. Of most it is just their use."""

    def __init__(self, use: DecayingHistograms) -> None:
        """`use` are the histograms of CPU use, each sample of which weighs CPU_SAMPLE_WEIGHT."""
        self._use = use
        self._rows = RowsOnDemand()
        self._own = DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS, single=True)

    def add(self, aggregates: Rows, cores: Values, throttled: Values, times_seconds: Values) -> None:
        """Add samples, shapes (samples,), that are in the use already; NaN, not measured, adds nothing."""
        measured = np.isfinite(cores) & np.isfinite(throttled)
        aggregates, cores = aggregates[measured], cores[measured]
        throttled, times_seconds = throttled[measured], times_seconds[measured]
        known = self._rows.of(aggregates) != _NONE
        new = np.unique(aggregates[~known & (throttled > 0)])
        # What was used before the first loss was all that was asked for: it has this batch's other samples too.
        self._own.add_many(
            self._rows.of(aggregates[known]), (cores + throttled)[known], times_seconds[known], CPU_SAMPLE_WEIGHT
        )
        if not len(new):
            return
        if not self._rows.in_use:  # a reference that stood still for months would make what is copied infinite
            self._own.reference_seconds = self._use.reference_seconds
        rows = self._rows.make(new)
        self._own.resize(self._rows.count)
        self._own.weights[rows] = self._use.weights[new] * self._scale()
        first = ~known & (throttled > 0)
        rows = self._rows.of(aggregates[first])
        self._own.add_many(rows, cores[first], times_seconds[first], -CPU_SAMPLE_WEIGHT)
        self._own.add_many(rows, (cores + throttled)[first], times_seconds[first], CPU_SAMPLE_WEIGHT)

    def weights(self, aggregates: Rows) -> Values:
        """Return the weights of aggregates by bucket, as their use's are: those of their use where none lost any."""
        found: Values = self._use.weights[aggregates].astype(np.float64)
        rows = self._rows.of(aggregates)
        own = rows != _NONE
        found[own] = self._own.weights[rows[own]] / self._scale() if own.any() else 0.0
        return found

    def clear(self, aggregate: int) -> None:
        """Forget an aggregate."""
        row = self._rows.drop(aggregate)
        if row is not None:
            self._own.clear(row)

    def _scale(self) -> float:
        """Return what a weight of the use is here: the references may lie apart."""
        apart = (self._use.reference_seconds or 0.0) - (self._own.reference_seconds or 0.0)
        return float(2.0 ** (apart / HALF_LIFE_SECONDS))


class WaitLevels:
    """Waits for CPUs by the level of CPU at which they were waited.

    A container that uses c cores and waits w seconds a second would have used c + w. A request of r cores entitles it
    to the part of [c, c + w] below r, so that the lengths of these intervals, bucket by bucket, tell what any request
    cures. Weights lose half in HALF_LIFE_SECONDS, as those of the use.
    """

    def __init__(self) -> None:
        self._rows = RowsOnDemand()
        self._sums: NDArray[np.float32] = np.zeros((0, 1 + LEVELS.count), np.float32)
        """Weight of the samples, then waits by level."""
        self._reference_seconds: float | None = None

    def add(self, aggregates: Rows, cores: Values, waited: Values, times_seconds: Values) -> None:
        """Add samples, shapes (samples,): cores used and seconds a second waited; NaN, not measured, adds nothing."""
        measured = np.isfinite(cores) & np.isfinite(waited)
        aggregates, cores, waited = aggregates[measured], np.maximum(cores[measured], 0.0), waited[measured]
        times_seconds = times_seconds[measured]
        new = np.unique(aggregates[(self._rows.of(aggregates) == _NONE) & (waited > 0)])
        if len(new):
            self._rows.make(new)
            if self._rows.count > len(self._sums):
                missing = max(self._rows.count, len(self._sums) * 5 // 4) - len(self._sums)
                self._sums = np.concatenate([self._sums, np.zeros((missing, self._sums.shape[1]), np.float32)])
        rows = self._rows.of(aggregates)
        own = rows != _NONE
        if not own.any():
            return
        rows, cores, waited, times_seconds = rows[own], cores[own], waited[own], times_seconds[own]
        weight = self._weights(times_seconds)
        below = np.clip(LEVELS.starts - cores[:, None], 0.0, waited[:, None])
        by_level = np.diff(below, axis=1, append=waited[:, None])
        added = np.concatenate([np.ones((len(rows), 1)), by_level], axis=1) * weight[:, None]
        np.add.at(self._sums, rows, added.astype(np.float32))

    def of(self, groups: list[Rows]) -> Values:
        """Return the sums of groups of aggregates: the weight of the samples, then waits by level."""
        made = np.zeros((len(groups), 1 + LEVELS.count))
        for place, aggregates in enumerate(groups):
            rows = self._rows.of(aggregates)
            made[place] = self._sums[rows[rows != _NONE]].sum(axis=0, dtype=np.float64)
        return made

    def clear(self, aggregate: int) -> None:
        """Forget an aggregate."""
        row = self._rows.drop(aggregate)
        if row is not None:
            self._sums[row] = 0.0

    def _weights(self, times_seconds: Values) -> Values:
        latest = float(times_seconds.max())
        if self._reference_seconds is None:
            self._reference_seconds = latest
        exponent = (latest - self._reference_seconds) / HALF_LIFE_SECONDS
        if exponent > SINGLE_MAX_EXPONENT:
            self._sums *= np.float32(2.0**-exponent)
            self._reference_seconds = latest
        return np.asarray(np.exp2((times_seconds - self._reference_seconds) / HALF_LIFE_SECONDS))


def waited_a_second(sums: Values) -> Values:
    """Return seconds waited a second by one replica, of sums of `WaitLevels.of`; NaN without a sample."""
    known = sums[:, 0] > 0
    return np.where(known, sums[:, 1:].sum(axis=1) / np.where(known, sums[:, 0], 1.0), np.nan)


def cured_a_second(sums: Values, requests: Values, targets: Values) -> Values:
    """Return the part of it that requests of `targets` instead of `requests` cores would have cured; NaN as above."""
    known = sums[:, 0] > 0

    def entitled(amounts: Values) -> Values:
        widths = np.append(np.diff(LEVELS.starts), np.inf)
        inside = np.clip((np.nan_to_num(amounts)[:, None] - LEVELS.starts) / widths, 0.0, 1.0)
        return np.asarray((sums[:, 1:] * inside).sum(axis=1))

    gained = np.maximum(entitled(targets) - entitled(requests), 0.0)
    return np.where(known, gained / np.where(known, sums[:, 0], 1.0), np.nan)
