"""How much the neighbours harm each workload: lost seconds per second of progress, with a confidence interval.

The estimator is a ratio of sums over the last minutes, R = sum(lost) / sum(progress). What is lost is the ledger's
time lost to others (`api.loss`, by_others), at most one second per second for every thread that waited at once. The
progress is the time on CPU, the least that the workload did meanwhile; a request that takes T alone takes at most
T (1 + R) beside its neighbours on average, so "the neighbours cost the workload less than 5 %" means R < 0.05.

The interval comes from batch means (Law and Kelton, Simulation Modeling and Analysis, ch. 9): ticks are gathered in
batches long enough to be independent, and the residuals lost - R progress of k batches give
Var(R) = sum(residual^2) / (k (k - 1) mean(progress)^2) (Cochran, Sampling Techniques, ch. 6) with Student's t.
docs/harm.md has the reasons.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.loss import LOSS_CAUSES
from api.window import Delta

Floats = NDArray[np.float64]

BATCHES = 24
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)
"""Student's t for 97.5 % with 1, 2, ... degrees of freedom; 2.09 beyond."""


@dataclass(frozen=True, slots=True)
class Harm:
    """Columns with a row for each cgroup asked for; NaN with fewer than two batches or without progress."""

    ratio: Floats
    """Seconds lost to others per second of progress."""
    low: Floats
    high: Floats
    """95 % confidence interval."""
    batches: NDArray[np.int64]


class HarmMeter:
    """Feed it every tick; it keeps the last `BATCHES` batches."""

    def __init__(self, batch_seconds: float = 5.0) -> None:
        self._batch_seconds = batch_seconds
        self._ids: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._lost: Floats = np.zeros((0, 0))
        self._progress: Floats = np.zeros((0, 0))
        self._filled_seconds = 0.0

    def add(self, ids: NDArray[np.uint64], lost: Floats, progress: Floats, seconds: float) -> None:
        """One tick: seconds lost to others and seconds of progress of each cgroup in `seconds` of time."""
        if not np.array_equal(ids, self._ids):
            self._lost, self._progress = (self._moved(part, ids) for part in (self._lost, self._progress))
            self._ids = ids
        if not len(self._lost) or self._filled_seconds >= self._batch_seconds:
            self._lost = np.vstack([self._lost[-(BATCHES - 1) :], np.zeros(len(ids))])
            self._progress = np.vstack([self._progress[-(BATCHES - 1) :], np.zeros(len(ids))])
            self._filled_seconds = 0.0
        self._lost[-1] += lost
        self._progress[-1] += progress
        self._filled_seconds += seconds

    def harm(self, ids: NDArray[np.uint64]) -> Harm:
        """The figures of these cgroups over the full batches; what was never seen is NaN."""
        place = {int(identity): column for column, identity in enumerate(self._ids)}
        columns = np.array([place.get(int(identity), -1) for identity in ids], dtype=np.int64)
        full = slice(None) if self._filled_seconds >= self._batch_seconds else slice(None, -1)
        lost, progress = self._lost[full], self._progress[full]
        if not len(lost) or not len(self._ids):
            unknown = np.full(len(ids), np.nan)
            return Harm(unknown, unknown, unknown, np.zeros(len(ids), dtype=np.int64))
        known = columns >= 0
        lost = np.where(known, lost[:, columns], np.nan)
        progress = np.where(known, progress[:, columns], np.nan)
        return _estimate(lost, progress)

    def _moved(self, part: Floats, ids: NDArray[np.uint64]) -> Floats:
        """Columns in the order of `ids`; a newcomer's past is NaN, which no estimate uses."""
        moved = np.full((len(part), len(ids)), np.nan)
        place = {int(identity): column for column, identity in enumerate(self._ids)}
        for column, identity in enumerate(ids.tolist()):
            if identity in place:
                moved[:, column] = part[:, place[identity]]
        if len(moved):
            moved[-1] = np.nan_to_num(moved[-1])
        return moved


def tick_of(delta: Delta) -> tuple[Floats, Floats] | None:
    """Seconds lost to others and seconds on CPU of each cgroup in a window; None where no probe measures them."""
    columns = delta.table.columns
    names = [name for cause in LOSS_CAUSES if cause.by_others for name in cause.columns if name in columns]
    usage = next((name for name in ("cpu.oncpu_ns", "cpustat.usage_ns") if name in columns), None)
    if not names or usage is None:
        return None
    lost = np.sum([np.nan_to_num(columns[name].astype(np.float64)) for name in names], axis=0) / 1e9
    return np.asarray(lost), np.nan_to_num(columns[usage].astype(np.float64)) / 1e9


def _estimate(lost: Floats, progress: Floats) -> Harm:
    """From batches of shape (batches, cgroups); NaN batches are left out."""
    seen = np.isfinite(lost) & np.isfinite(progress)
    count = seen.sum(axis=0)
    lost, progress = np.where(seen, lost, 0.0), np.where(seen, progress, 0.0)
    whole = progress.sum(axis=0)
    enough = (count >= 2) & (whole > 0)
    ratio = np.divide(lost.sum(axis=0), whole, out=np.full(len(whole), np.nan), where=enough)
    residual = np.where(seen, lost - np.nan_to_num(ratio) * progress, 0.0)
    mean = np.divide(whole, count, out=np.ones(len(whole)), where=enough)
    spread = np.sqrt((residual**2).sum(axis=0) / np.maximum(count * (count - 1), 1)) / mean
    reach = np.array([_T_975[degrees - 1] if 1 <= degrees <= len(_T_975) else 2.09 for degrees in (count - 1).tolist()])
    return Harm(ratio, np.maximum(ratio - reach * spread, 0.0), ratio + reach * spread, count)
