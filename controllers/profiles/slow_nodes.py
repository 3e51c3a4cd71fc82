"""Slow nodes: how far the usual values of a node's workloads lie from the fleet's, and which nodes stand out. Pure.

A shift is a distance in buckets of the sketch, four to the octave, between the middle halves of two distributions of
one signal of one workload at one load on one type of node. A node is slow where most of its workloads are slower there:
one slow workload is that workload's own trouble, and a fleet that became slow is no node's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from detector.baselines.sketch import PER_OCTAVE

SLOWNESS = ("cpi", "turnaround")
"""Signals that grow when a node is slow: cycles an instruction, and time a request."""
GAIN = 0.2
"""Weight of the newest statement in a mean shift."""
LEAST_STATEMENTS = 3
LEAST_WORKLOADS = 5
FRESH_SECONDS = 86_400.0
"""Age from which a shift tells nothing of a node."""
SLOW_RATIO = 1.15
"""Median slowness from which a node is slow; it ends below the root of it."""
MOST_PART = 0.75
"""Part of the workloads that must be slower by more than the end of it."""
MOST_RATIO = 4.0
_SWEEP_EVERY = 64
"""Workloads of a node that are new between two looks for those that tell nothing any more."""
_END_RATIO = SLOW_RATIO**0.5


@dataclass(slots=True)
class _Shift:
    mean: float
    statements: int
    time: float


@dataclass(frozen=True, slots=True)
class Slowness:
    """One node against the fleet."""

    ratio: float
    """Median over its workloads: 1.3 is 30 % slower."""
    workloads: int
    slower: int
    """Workloads that are slower by more than the end of slowness."""
    worst: tuple[tuple[str, float], ...]
    """The three workloads with the largest ratios."""

    @property
    def begins(self) -> bool:
        """Whether a node that was not is slow now."""
        return self._counts and self.ratio >= SLOW_RATIO

    @property
    def goes_on(self) -> bool:
        """Whether a node that was slow still is."""
        return self._counts and self.ratio >= _END_RATIO

    @property
    def _counts(self) -> bool:
        return self.workloads >= LEAST_WORKLOADS and self.slower >= MOST_PART * self.workloads


class NodeShifts:
    """Mean shifts by node and workload."""

    def __init__(self) -> None:
        self._shifts: dict[str, dict[str, _Shift]] = {}
        self._unknown_since: dict[str, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._shifts.values()))

    def add(self, node: str, workload: str, buckets: float, time: float) -> None:
        """Take in the distance of one statement."""
        own = self._shifts.setdefault(node, {})
        known = own.get(workload)
        if known is None or time - known.time > FRESH_SECONDS:
            if known is None and len(own) % _SWEEP_EVERY == _SWEEP_EVERY - 1:
                own = self._shifts[node] = {key: each for key, each in own.items() if time - each.time <= FRESH_SECONDS}
            own[workload] = _Shift(buckets, 1, time)
            return
        known.statements += 1
        known.mean += max(GAIN, 1.0 / known.statements) * (buckets - known.mean)
        known.time = time

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._shifts.pop(node, None)
        self._unknown_since.pop(node, None)

    def unknown_seconds(self, node: str, now: float) -> float:
        """Return for how long this was asked of a node without enough being known of it."""
        return now - self._unknown_since.setdefault(node, now)

    def found(self, now: float) -> Mapping[str, Slowness]:
        """Return the slowness of each node that enough is known of."""
        result = {}
        for node, own in self._shifts.items():
            told = {
                workload: 2.0 ** (shift.mean / PER_OCTAVE)
                for workload, shift in own.items()
                if shift.statements >= LEAST_STATEMENTS and now - shift.time <= FRESH_SECONDS
            }
            if len(told) >= LEAST_WORKLOADS:
                worst = sorted(told.items(), key=lambda each: (-each[1], each[0]))[:3]
                ratio = min(float(np.median(list(told.values()))), MOST_RATIO)
                slower = sum(each > _END_RATIO for each in told.values())
                self._unknown_since.pop(node, None)
                result[node] = Slowness(ratio, len(told), slower, tuple(worst))
        return result
