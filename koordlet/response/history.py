"""Recent ticks of the pairs that the response watches: losses, turnaround and throttling, one number a tick."""

import statistics
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from koordlet.response.observation import Floats, Observation

_TICKS = 60


class Pair(NamedTuple):
    """A culprit, a victim, and the resource that one costs the other."""

    culprit: str
    victim: str
    resource: str


class History:
    """Series of the watched pairs and victims, newest last; NaN where a tick has no number."""

    def __init__(self) -> None:
        self._lost: dict[Pair, deque[float]] = {}
        self._turnaround: dict[str, deque[float]] = {}
        self._throttled: dict[str, deque[float]] = {}
        self._slowdown: dict[str, deque[float]] = {}

    def record(self, observation: Observation, pairs: Iterable[Pair], victims: Iterable[str]) -> None:
        """Add a tick of these pairs, their victims and further `victims`; forget all others."""
        watched = set(pairs)
        self._lost = {pair: self._lost.get(pair, deque(maxlen=_TICKS)) for pair in watched}
        for pair, series in self._lost.items():
            series.append(observation.lost_to(pair.victim, pair.culprit, pair.resource))
        followed = {pair.victim for pair in watched} | set(victims)
        self._turnaround = _extended(self._turnaround, followed, observation, observation.turnaround_seconds)
        self._throttled = _extended(self._throttled, followed, observation, observation.throttled)
        self._slowdown = _extended(self._slowdown, followed, observation, observation.slowdown)

    def lost(self, pair: Pair, ticks: int) -> float:
        """Return the mean of what the culprit cost the victim, in seconds per second; 0 without a tick."""
        return _mean(self._lost.get(pair, ()), ticks)

    def throttled(self, victim: str, ticks: int) -> float:
        """Return the mean of what the victim's own quota cost it."""
        return _mean(self._throttled.get(victim, ()), ticks)

    def turnaround_seconds(self, victim: str, ticks: int) -> float:
        """Return the median of the ticks' 99th percentiles: one of a single second's requests is too noisy."""
        return _median(self._turnaround.get(victim, ()), ticks)

    def slowdown(self, victim: str, ticks: int) -> float:
        """Return the median of the ticks' slowdowns; NaN where none is known."""
        return _median(self._slowdown.get(victim, ()), ticks)


def _extended(
    known: dict[str, deque[float]], victims: set[str], observation: Observation, column: Floats | None
) -> dict[str, deque[float]]:
    kept = {victim: known.get(victim, deque(maxlen=_TICKS)) for victim in victims}
    for victim, series in kept.items():
        row = observation.rows.get(victim)
        series.append(float(column[row]) if column is not None and row is not None else np.nan)
    return kept


def _mean(series: Iterable[float], ticks: int) -> float:
    newest = [each for each in list(series)[-ticks:] if each == each]
    return sum(newest) / len(newest) if newest else 0.0


def _median(series: Iterable[float], ticks: int) -> float:
    newest = [each for each in list(series)[-ticks:] if each == each]
    return statistics.median(newest) if newest else np.nan
