"""Recent usage as rings of samples, and the averages and percentiles that a report takes of them. Pure.

All workloads share one ring of columns: 110 pods for half an hour at a sample a second are 2.4 MB.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

MAX_SLOTS = 3600
"""Samples kept of each workload; older ones are overwritten."""
_ROWS = 16
"""Rows by which the ring grows."""


class Quantity(IntEnum):
    """Measured quantities, each a plane of the ring."""

    CPU = 0
    """Cores."""
    MEMORY = 1
    """Bytes without page cache."""
    MEMORY_WITH_CACHE = 2
    """Bytes."""


Sample = tuple[float, float, float]
"""A value for each `Quantity`; NaN is not measured."""
NOT_MEASURED: Sample = (math.nan, math.nan, math.nan)


class UsageSeries:
    """Samples of workloads by key. Times are monotonic seconds and never go back."""

    def __init__(self, span_seconds: float, grain_seconds: float) -> None:
        """Keep `span_seconds`, one sample each `grain_seconds`; a sample that comes sooner is left out."""
        self._grain_seconds = grain_seconds
        self._slots = min(max(math.ceil(span_seconds / grain_seconds), 2), MAX_SLOTS)
        self._times = np.full(self._slots, -np.inf)
        self._values = np.full((len(Quantity), self._slots, _ROWS), np.nan, dtype=np.float32)
        self._rows: dict[str, int] = {}
        self._next = 0
        self._newest_seconds = -math.inf

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    @property
    def nbytes(self) -> int:
        """Size of the ring in bytes."""
        return self._values.nbytes + self._times.nbytes

    @property
    def keys(self) -> Sequence[str]:
        """Keys with any sample, in no particular order."""
        return tuple(self._rows)

    def append(self, samples: Mapping[str, Sample], now_seconds: float) -> None:
        """Add a sample of each workload; those left out were not measured at this time."""
        if now_seconds - self._newest_seconds < 0.5 * self._grain_seconds:
            return
        slot, self._next, self._newest_seconds = self._next, (self._next + 1) % self._slots, now_seconds
        self._times[slot] = now_seconds
        self._values[:, slot, :] = np.nan
        rows = [self._row_of(key) for key in samples]
        if rows:
            self._values[:, slot, rows] = np.array(list(samples.values())).T

    def forget(self, keys: Iterable[str]) -> None:
        """Drop the samples of workloads that are gone."""
        for key in keys:
            row = self._rows.pop(key, None)
            if row is not None:
                self._values[:, :, row] = np.nan

    def samples(self, key: str, quantity: Quantity, since_seconds: float) -> NDArray[np.float64]:
        """Return the measured samples of one workload after a time, oldest or not first; empty without any."""
        row = self._rows.get(key)
        if row is None:
            return np.empty(0)
        values = self._values[quantity, self._times > since_seconds, row].astype(np.float64)
        measured: NDArray[np.float64] = values[np.isfinite(values)]
        return measured

    def span_seconds(self, since_seconds: float) -> float:
        """Return the time from the first to the last sample after a time; 0 with fewer than two."""
        times = self._times[self._times > since_seconds]
        return float(times.max() - times.min()) if len(times) else 0.0

    def means(self, quantity: Quantity, since_seconds: float) -> dict[str, float]:
        """Return the average of each workload measured after a time."""
        return self._each(quantity, since_seconds, 0.0)

    def percentiles(self, quantity: Quantity, since_seconds: float, quantile: float) -> dict[str, float]:
        """Return a percentile of each workload measured after a time, by the rule of `percentile`."""
        return self._each(quantity, since_seconds, quantile)

    def _each(self, quantity: Quantity, since_seconds: float, quantile: float) -> dict[str, float]:
        """Return average, for quantile 0, or percentile by key."""
        window = self._values[quantity, self._times > since_seconds, :]
        counts = np.isfinite(window).sum(axis=0) if len(window) else np.zeros(window.shape[1], dtype=int)
        if not counts.any():
            return {}
        if quantile:
            ordered = np.sort(window, axis=0)  # NaN sorts last
            taken = np.maximum(np.trunc(counts.astype(np.float32) * np.float32(quantile)).astype(int) - 1, 0)
            figures = np.take_along_axis(ordered, np.minimum(taken, len(window) - 1)[None, :], axis=0)[0]
        else:
            figures = np.nansum(window, axis=0, dtype=np.float64) / np.maximum(counts, 1)
        return {key: float(figures[row]) for key, row in self._rows.items() if counts[row]}

    def _row_of(self, key: str) -> int:
        row = self._rows.get(key)
        if row is None:
            taken = set(self._rows.values())
            row = next(number for number in range(len(taken) + 1) if number not in taken)
            if row == self._values.shape[2]:
                more = np.full((len(Quantity), self._slots, max(_ROWS, row)), np.nan, dtype=np.float32)
                self._values = np.concatenate([self._values, more], axis=2)
            self._rows[key] = row
        return row


def percentile(samples: NDArray[np.float64], quantile: float) -> float:
    """Return the sample at rank trunc(n * quantile), counted from 1 and at least 1, as Koordinator takes it."""
    ordered = np.sort(samples)
    return float(ordered[max(int(np.float32(len(ordered)) * np.float32(quantile)) - 1, 0)])
