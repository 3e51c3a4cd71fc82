"""Batch means of per-tick quantities of cgroups: sums over batches long enough to be independent, and their ratios.

Ticks follow each other closely; means of batches of some seconds are nearly independent (Law and Kelton, Simulation
Modeling and Analysis, ch. 9). The residuals part - R whole of k batches give
Var(R) = sum(residual^2) / (k (k - 1) mean(whole)^2) (Cochran, Sampling Techniques, ch. 6) with Student's t.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BATCHES = 24
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)
"""Student's t for 97.5 % with 1, 2, ... degrees of freedom; 2.09 beyond."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Columns with a row for each cgroup; NaN with fewer than two batches or where the whole is zero."""

    value: Floats
    """Sum of the part over sum of the whole."""
    reach: Floats
    """Half the 95 % confidence interval."""
    batches: NDArray[np.int64]


class BatchMeans:
    """Sums of `quantities` numbers of each cgroup over the last `BATCHES` batches of ticks."""

    def __init__(self, quantities: int, batch_seconds: float) -> None:
        self._batch_seconds = batch_seconds
        self._ids: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._sums: Floats = np.zeros((0, quantities, 0))
        self._filled_seconds = 0.0

    def add(self, ids: NDArray[np.uint64], values: Floats, seconds: float) -> None:
        """One tick of `seconds`: `values` has shape (quantities, cgroups), each number finite."""
        if not np.array_equal(ids, self._ids):
            self._sums = self._moved(ids)
            self._ids = ids
        if not len(self._sums) or self._filled_seconds >= self._batch_seconds:
            self._sums = np.concatenate([self._sums[-(BATCHES - 1) :], np.zeros((1, *values.shape))])
            self._filled_seconds = 0.0
        self._sums[-1] += values
        self._filled_seconds += seconds

    def full(self, ids: NDArray[np.uint64]) -> Floats:
        """Sums of the full batches, shape (batches, quantities, cgroups); NaN where a cgroup was not there."""
        columns = self._places(ids)
        sums = self._sums if self._filled_seconds >= self._batch_seconds else self._sums[:-1]
        if not len(self._ids):
            return np.full((len(sums), sums.shape[1], len(ids)), np.nan)
        return np.where(columns >= 0, sums[:, :, columns], np.nan)

    def _places(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Column of each id, -1 where it has none."""
        place = {identity: column for column, identity in enumerate(self._ids.tolist())}
        return np.array([place.get(identity, -1) for identity in ids.tolist()], dtype=np.int64)

    def _moved(self, ids: NDArray[np.uint64]) -> Floats:
        """Columns in the order of `ids`; batches before a cgroup appeared are NaN, which no estimate uses."""
        moved = np.full((*self._sums.shape[:2], len(ids)), np.nan)
        places = self._places(ids)
        moved[:, :, places >= 0] = self._sums[:, :, places[places >= 0]]
        if len(moved):
            moved[-1] = np.nan_to_num(moved[-1])
        return moved


def ratio_of(part: Floats, whole: Floats) -> Ratio:
    """Estimate the ratio from batches of shape (batches, cgroups); NaN batches are left out."""
    seen = np.isfinite(part) & np.isfinite(whole)
    count = seen.sum(axis=0)
    part, whole = np.where(seen, part, 0.0), np.where(seen, whole, 0.0)
    total = whole.sum(axis=0)
    enough = (count >= 2) & (total > 0)
    value = np.divide(part.sum(axis=0), total, out=np.full(len(total), np.nan), where=enough)
    residual = np.where(seen, part - np.nan_to_num(value) * whole, 0.0)
    mean = np.divide(total, count, out=np.ones(len(total)), where=enough)
    spread = np.sqrt((residual**2).sum(axis=0) / np.maximum(count * (count - 1), 1)) / mean
    student = [_T_975[degrees - 1] if 1 <= degrees <= len(_T_975) else 2.09 for degrees in (count - 1).tolist()]
    return Ratio(value, np.where(enough, np.array(student) * spread, np.nan), count.astype(np.int64))
