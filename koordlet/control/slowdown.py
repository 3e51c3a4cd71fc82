"""Slowdown of a service: its turnaround over that in quiet at the same load, with a confidence interval.

The estimator is a ratio of sums over the last minutes, S = sum(took) / sum(requests usual) - 1: what the requests took,
over what as many requests take in quiet at the load of each tick. The usual turnaround is the baseline's median of tick
means (`detector/baselines/learner.py`), so a service whose quiet ticks have rare slow ones shows a little more than
zero in quiet, never less.

The interval is the sum of three doubts: of the present, from batch means (`koordlet/control/batch_means.py`); of the
baseline's median, whose standard error is 1.2533 sigma / sqrt(n) for n independent samples (Kendall and Stuart, The
Advanced Theory of Statistics, vol. 1, ch. 14), samples of one batch counting as one; and of the baseline's grain, the
edges of the bucket that the median lies in, 19 % apart. Each is taken at its worst, so that the interval covers the
truth more often than it says. docs/harm.md has the reasons.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.baselines.sketch import edges_of
from detector.judging.signals import Turnarounds
from koordlet.control.batch_means import BatchMeans, Floats, ratio_of

_MEDIAN_ERROR = 1.2533
"""Standard error of a normal sample's median over that of its mean."""
_Z_975 = 1.96
_FEWEST_REQUESTS = 10
"""Requests in a tick below which its mean turnaround says little."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Columns with a row for each cgroup asked for; NaN with fewer than two batches that have requests."""

    ratio: Floats
    """Mean turnaround over the usual one, less one; below 0 it answers sooner than usual."""
    low: Floats
    high: Floats
    """95 % confidence interval; not below -1."""
    batches: NDArray[np.int64]
    """Batches with requests and a baseline."""


def tick_slowdown(turnarounds: Turnarounds, ids: NDArray[np.uint64]) -> Floats:
    """Return one tick's mean turnaround over the longest that is usual, less one, for each of `ids`.

    The longest usual one is the upper edge of the bucket that the baseline's median lies in, with the doubt of a 95 %
    interval: above zero the requests took longer than usual beyond the baseline's grain. NaN without a ready baseline,
    and with so few requests that a single slow one decides.
    """
    usual = turnarounds.usual.expected
    known = (turnarounds.requests >= _FEWEST_REQUESTS) & np.isfinite(turnarounds.took_seconds) & (usual > 0)
    longest = edges_of(np.where(known, usual, 1.0))[1]
    doubt = _Z_975 * _MEDIAN_ERROR * turnarounds.usual.spread / np.sqrt(np.maximum(turnarounds.usual.samples, 1.0))
    longest = longest + np.where(known, np.nan_to_num(doubt), 0.0)
    found = np.where(
        known, turnarounds.took_seconds / np.where(known, turnarounds.requests * longest, 1.0) - 1.0, np.nan
    )
    row_of = {identity: row for row, identity in enumerate(turnarounds.ids.tolist())}
    rows = np.array([row_of.get(identity, -1) for identity in ids.tolist()], dtype=np.intp)
    return np.where(rows >= 0, found[rows], np.nan) if len(found) else np.full(len(ids), np.nan)


class SlowdownMeter:
    """Estimates from the last batches of ticks."""

    def __init__(self, batch_seconds: float = 5.0) -> None:
        self._batch_seconds = batch_seconds
        self._batches = BatchMeans(4, batch_seconds)

    def add(self, turnarounds: Turnarounds, seconds: float) -> None:
        """Add a tick of `seconds`; rows without requests or without a ready baseline add no time."""
        usual = turnarounds.usual.expected
        counts = (turnarounds.requests > 0) & np.isfinite(turnarounds.took_seconds) & np.isfinite(usual) & (usual > 0)
        usual = np.where(counts, usual, 1.0)
        independent = np.maximum(turnarounds.usual.samples * min(seconds / self._batch_seconds, 1.0), 1.0)
        spread = np.where(counts, turnarounds.usual.spread, 0.0)
        doubt = _Z_975 * _MEDIAN_ERROR * spread / np.sqrt(independent)
        lower, upper = edges_of(usual)
        quantities = (
            turnarounds.took_seconds,
            turnarounds.requests * usual,
            turnarounds.requests * np.maximum(lower - doubt, 0.0),
            turnarounds.requests * (upper + doubt),
        )
        self._batches.add(turnarounds.ids, np.where(counts, np.stack(quantities), 0.0), seconds)

    def slowdown(self, ids: NDArray[np.uint64]) -> Slowdown:
        """Return the estimates of these cgroups over the full batches; NaN for a cgroup without requests."""
        full = self._batches.full(ids)
        took, usual, least, most = np.moveaxis(np.where(full[:, 1:2] > 0, full, np.nan), 1, 0)
        found = ratio_of(took, usual)
        sums = [np.nansum(part, axis=0) for part in (usual, least, most)]
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.maximum(found.value - found.reach, 0.0) * sums[0] / sums[2]
            high = (found.value + found.reach) * sums[0] / sums[1]
        return Slowdown(found.value - 1.0, low - 1.0, high - 1.0, found.batches)
