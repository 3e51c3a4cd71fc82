"""Counts of multiplexed perf events as what they would have been with a hardware counter of their own. Pure.

Between two reads an event that was wanted on a CPU for `enabled` ns and had a counter for `running` ns counted
`count`; the estimate is count x enabled / running (perf_event_open(2)). It is made CPU by CPU and interval by
interval and added up: the ratio of the lifetime sums could shrink from one read to the next, and a counter must not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

START_UP = 1e-4
"""An event is wanted a few microseconds before it first runs: so small a gap is not multiplexing."""


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Cumulative times of each CPU's events, both of shape (cpus, events)."""

    enabled_ns: NDArray[np.uint64]
    running_ns: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Estimates:
    """Cumulative, rows as the ids given: counts of shape (n, events), times of shape (n,)."""

    counts: NDArray[np.uint64]
    enabled_ns: NDArray[np.uint64]
    running_ns: NDArray[np.uint64]
    """Time of `enabled_ns` in which the least favoured event had a counter."""


class ScaledCounts:
    """Estimates accumulated for each cgroup."""

    def __init__(self, cpus: int, events: int) -> None:
        self._ids = np.empty(0, dtype=np.uint64)
        self._base = np.empty((0, cpus, events + 1), dtype=np.uint64)
        self._total = np.empty((0, events + 2), dtype=np.uint64)
        self._enabled = np.zeros((cpus, events), dtype=np.uint64)
        self._running = np.zeros((cpus, events), dtype=np.uint64)

    def advance(self, ids: NDArray[np.uint64], raw: NDArray[np.uint64], times: EventTimes) -> Estimates:
        """Take cumulative raw readings of shape (n, cpus, events + 1), the last one being the time held in ns.

        Cgroups absent from `ids` are dropped.
        """
        base, total = self._carried(ids)
        grown = raw - base
        factor, share = self._factors(times)
        if np.all(factor == 1.0):
            total[:, :-1] += grown.sum(axis=1)
            total[:, -1] += grown[:, :, -1].sum(axis=1)
        else:
            counts = np.einsum("nce,ce->ne", grown[:, :, :-1].astype(np.float64), factor)
            held = grown[:, :, -1]
            total[:, :-2] += np.rint(counts).astype(np.uint64)
            total[:, -2] += held.sum(axis=1)
            total[:, -1] += (held.astype(np.float64) @ share).astype(np.uint64)
        self._ids, self._base, self._total = ids.copy(), raw.copy(), total
        return Estimates(total[:, :-2].copy(), total[:, -2].copy(), total[:, -1].copy())

    def keep(self, ids: NDArray[np.uint64]) -> None:
        """Forget all other cgroups: one that comes back counts from zero."""
        rows = np.isin(self._ids, ids)
        self._ids, self._base, self._total = self._ids[rows], self._base[rows], self._total[rows]

    def _factors(self, times: EventTimes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the factors of each CPU's counts (cpus, events), and each CPU's least running share (cpus,).

        An event that did not run on a CPU counted nothing there; its time waits and weighs on the next interval.
        """
        anew = times.enabled_ns < self._enabled  # the CPU was offline meanwhile
        enabled = (times.enabled_ns - np.where(anew, 0, self._enabled)).astype(np.float64)
        running = (times.running_ns - np.where(anew, 0, self._running)).astype(np.float64)
        ran = running > 0
        factor = np.where(ran, enabled / np.where(ran, running, 1.0), 1.0)
        share = np.where(enabled > 0, running / np.where(enabled > 0, enabled, 1.0), 1.0)
        whole = share > 1.0 - START_UP
        factor[whole], share[whole] = 1.0, 1.0
        self._enabled = np.where(ran | anew, times.enabled_ns, self._enabled)
        self._running = np.where(ran | anew, times.running_ns, self._running)
        return factor, share.min(axis=1)

    def _carried(self, ids: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Base and total of each of `ids`, zero for the ones not seen before."""
        if np.array_equal(ids, self._ids):
            return self._base, self._total.copy()
        base = np.zeros((len(ids), *self._base.shape[1:]), dtype=np.uint64)
        total = np.zeros((len(ids), *self._total.shape[1:]), dtype=np.uint64)
        _, rows, known = np.intersect1d(ids, self._ids, assume_unique=True, return_indices=True)
        base[rows], total[rows] = self._base[known], self._total[known]
        return base, total
