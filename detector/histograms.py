"""Decaying histograms of many workloads at once: rows of bucket weights, new samples weigh more. Pure.

A sample weighs `2 ** ((time - reference) / half-life)`, so nothing is rewritten as time passes: only when the exponent
grows large the reference moves on and all weights shrink together. Buckets grow by a constant ratio, so a percentile
has a constant relative error. The arithmetic is that of the Vertical Pod Autoscaler's histograms.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Values = NDArray[np.float64]

EPSILON = 0.0001
"""Weight below which a bucket counts as empty."""
MAX_EXPONENT = 100
"""Half-lives between reference and sample from which the reference moves on."""
SINGLE_MAX_EXPONENT = 50
"""The same of single precision, which holds 2 ** 127."""
CHECKPOINT_WEIGHT = 10_000
"""Weight of the heaviest bucket in a checkpoint."""


@dataclass(frozen=True)
class Buckets:
    """Buckets that grow by a ratio: the first is `first` wide, each other `ratio` times the one before."""

    maximum: float
    first: float
    ratio: float = 1.05

    @cached_property
    def count(self) -> int:
        """Number of buckets; the last one has no upper end."""
        return math.ceil(math.log(self.maximum * (self.ratio - 1) / self.first + 1, self.ratio)) + 1

    def index(self, values: Values) -> Rows:
        """Return the bucket of each value."""
        grown = np.maximum(values, 0.0) * (self.ratio - 1) / self.first + 1
        found = np.floor(np.log(grown) / math.log(self.ratio)).astype(np.intp)
        return np.where(values < self.first, 0, np.minimum(found, self.count - 1))

    @cached_property
    def starts(self) -> Values:
        """Lower end of each bucket."""
        return self.first * (self.ratio ** np.arange(self.count, dtype=np.float64) - 1) / (self.ratio - 1)

    @cached_property
    def estimates(self) -> Values:
        """Value that a percentile in each bucket is taken for: the bucket's upper end; of the last one its start."""
        return np.append(self.starts[1:], self.starts[-1])


CPU_BUCKETS = Buckets(maximum=1024.0, first=0.025)
"""Of CPU usage in cores."""
MEMORY_BUCKETS = Buckets(maximum=float(1 << 41), first=float(5 << 20))
"""Of memory usage in bytes."""
CPU_HALF_LIFE_SECONDS = 12 * 3600.0
MEMORY_HALF_LIFE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StoredHistogram:
    """One histogram as checkpoints hold it."""

    reference_seconds: float
    weights: dict[int, int]
    """By bucket, the heaviest CHECKPOINT_WEIGHT; buckets without weight are left out."""
    total: float
    """Sum of the weights before they were scaled."""


class DecayingHistograms:
    """Histograms of one quantity, a row for each workload."""

    def __init__(self, buckets: Buckets, half_life_seconds: float, *, single: bool = False) -> None:
        """With `single` weights take 4 bytes and are within a millionth of what they would be with 8."""
        self.buckets = buckets
        self.half_life_seconds = half_life_seconds
        self.reference_seconds: float | None = None
        """Time at which a sample weighs 1; None before the first sample."""
        self.weights: NDArray[np.floating[Any]] = np.zeros((0, buckets.count), np.float32 if single else np.float64)
        self._max_exponent = SINGLE_MAX_EXPONENT if single else MAX_EXPONENT

    def resize(self, rows: int) -> None:
        """Make room for `rows` rows; rows are never taken away."""
        missing = rows - len(self.weights)
        if missing > 0:
            self.weights = np.concatenate(
                [self.weights, np.zeros((missing, self.buckets.count), self.weights.dtype)], dtype=self.weights.dtype
            )

    def clear(self, row: int) -> None:
        """Empty a row."""
        self.weights[row] = 0.0

    def add(self, rows: Rows, values: Values, now_seconds: float) -> None:
        """Add one sample to each of some distinct rows; NaN, not measured, adds nothing."""
        measured = np.isfinite(values)
        rows, values = rows[measured], values[measured]
        self.weights[rows, self.buckets.index(values)] += self._weight(now_seconds)

    def add_many(self, rows: Rows, values: Values, times_seconds: Values, weight: float = 1.0) -> None:
        """Add samples of any rows and times, equal rows included; a negative weight takes samples away again.

        All shapes (samples,). What is taken away leaves no bucket below zero.
        """
        measured = np.isfinite(values)
        if not measured.any():
            return
        rows, values, times_seconds = rows[measured], values[measured], times_seconds[measured]
        self._weight(float(times_seconds.max()))
        assert self.reference_seconds is not None
        places = rows * self.buckets.count + self.buckets.index(values)
        added = weight * np.exp2((times_seconds - self.reference_seconds) / self.half_life_seconds)
        flat = self.weights.reshape(-1)
        if len(places) * 4 < flat.size:
            np.add.at(flat, places, added.astype(flat.dtype, copy=False))
        else:
            flat += np.bincount(places, weights=added, minlength=flat.size)
        if weight < 0:
            flat[places] = np.maximum(flat[places], 0.0)

    def percentile(self, rows: Rows, quantile: float) -> Values:
        """Return the estimate of each row's percentile, 0 for an empty one."""
        weights = self.weights[rows]
        if not len(rows):
            return np.zeros(0)
        filled = weights >= EPSILON
        first = filled.argmax(axis=1)
        last = self.buckets.count - 1 - filled[:, ::-1].argmax(axis=1)
        sums = weights.cumsum(axis=1, dtype=np.float64)
        found = (sums < quantile * weights.sum(axis=1, dtype=np.float64)[:, None]).sum(axis=1)
        estimates: Values = self.buckets.estimates[np.clip(found, first, last)]
        return np.where(filled.any(axis=1), estimates, 0.0)

    def is_empty(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows have no weight."""
        return np.asarray(self.weights[rows].max(axis=1) < EPSILON)

    def stored(self, row: int) -> StoredHistogram:
        """Return a row as a checkpoint holds it."""
        weights = self.weights[row]
        heaviest = float(weights.max())
        scaled = np.rint(weights * (CHECKPOINT_WEIGHT / heaviest)).astype(int) if heaviest > 0 else np.zeros(0, int)
        kept = {int(bucket): int(scaled[bucket]) for bucket in np.flatnonzero(scaled)}
        return StoredHistogram(self.reference_seconds or 0.0, kept, float(weights.sum()))

    def load(self, row: int, stored: StoredHistogram) -> None:
        """Replace a row by a stored one. Raises ValueError for one that these buckets cannot hold."""
        weight = sum(stored.weights.values())
        known = all(0 <= bucket < self.buckets.count and each >= 0 for bucket, each in stored.weights.items())
        if not known or not math.isfinite(stored.total) or stored.total < 0 or (stored.total > 0) != (weight > 0):
            raise ValueError("weights that do not fit the buckets or the total")
        self.clear(row)
        if not weight:
            return
        if self.reference_seconds is None:
            self.reference_seconds = stored.reference_seconds
        exponent = (stored.reference_seconds - self.reference_seconds) / self.half_life_seconds
        scale = stored.total / weight * 2.0 ** min(max(exponent, -1000.0), float(self._max_exponent))
        for bucket, each in stored.weights.items():
            self.weights[row, bucket] = each * scale

    def _weight(self, now_seconds: float) -> float:
        """Return the weight of a sample, after moving the reference where that is due."""
        if self.reference_seconds is None:
            self.reference_seconds = self._rounded(now_seconds)
        exponent = (now_seconds - self.reference_seconds) / self.half_life_seconds
        if exponent > self._max_exponent:
            moved = self._rounded(now_seconds)
            self.weights *= 2.0 ** ((self.reference_seconds - moved) / self.half_life_seconds)
            self.reference_seconds = moved
            exponent = (now_seconds - moved) / self.half_life_seconds
        return float(2.0**exponent)

    def _rounded(self, now_seconds: float) -> float:
        return math.floor(now_seconds / self.half_life_seconds + 0.5) * self.half_life_seconds
