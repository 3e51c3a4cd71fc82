"""Recent ticks of the pairs that the response watches: claims, turnaround and throttling, one number a tick."""

import statistics
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np

from koordlet.response.observation import Floats, Observation
from koordlet.response.trial import UNKNOWN_STATE, VictimState

_TICKS = 60
_KEPT_OBSERVATIONS = 4
"""Newest observations that are kept: the ticks before an interference was named belong to its series, too."""
_BEFORE_TICKS = 10
"""Ticks before a rung in which its victim's worst tick is looked for ..."""
_FEWEST_BEFORE = 3
"""... and the fewest that say what is usual."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Pair(NamedTuple):
    """A culprit, a victim, and the resource that one costs the other."""

    culprit: str
    victim: str
    resource: str


class History:
    """Series of the watched pairs, victims and bystanders, newest last; NaN where a tick has no number."""

    def __init__(self) -> None:
        self._observations: deque[Observation] = deque(maxlen=_KEPT_OBSERVATIONS)
        self._lost: dict[Pair, deque[float]] = {}
        self._turnaround: dict[str, deque[float]] = {}
        self._throttled: dict[str, deque[float]] = {}
        self._slowdown: dict[str, deque[float]] = {}
        self._states: dict[Pair, deque[VictimState]] = {}
        self._held_up: dict[str, deque[float]] = {}

    def record(
        self,
        observation: Observation,
        pairs: Iterable[Pair],
        victims: Iterable[str],
        bystanders: Iterable[str] = (),
    ) -> None:
        """Add a tick of these pairs, their victims, further `victims` and `bystanders`; forget all others.

        Series of what was not watched before begin with the few ticks that are still known.
        """
        self._observations.append(observation)
        watched = set(pairs)
        followed = {pair.victim for pair in watched} | set(victims)
        self._lost = self._extended(
            self._lost, watched, lambda seen, pair: seen.claim_on(pair.victim, pair.culprit, pair.resource)
        )
        self._turnaround = self._extended(self._turnaround, followed, _of(lambda seen: seen.turnaround_seconds))
        self._throttled = self._extended(self._throttled, followed, _of(_throttled))
        self._slowdown = self._extended(self._slowdown, followed, _of(lambda seen: seen.slowdown))
        self._states = self._extended(self._states, watched, state_of)
        self._held_up = self._extended(self._held_up, set(bystanders), _held_up)

    def lost(self, pair: Pair, ticks: int) -> float:
        """Return the mean of what the victim may hold against the culprit, in seconds per second; 0 without a tick."""
        return _mean(_newest(self._lost.get(pair, ()), ticks))

    def least_lost(self, pair: Pair, ticks: int) -> float:
        """Return the least that the culprit cost the victim in any of the last ticks, of those that are still known; of
        any pair. 0 without that many."""
        seen = list(self._observations)[-ticks:]
        return min((each.lost_to(pair.victim, pair.culprit, pair.resource) for each in seen), default=0.0)

    def ticks(self, pair: Pair, count: int) -> list[float]:
        """Return a pair's newest ticks, at least one."""
        return list(self._lost.get(pair, ()))[-count:] or [0.0]

    def throttled(self, victim: str, ticks: int) -> float:
        """Return the mean of what quotas cost the victim, its own and those above."""
        return _mean(_newest(self._throttled.get(victim, ()), ticks))

    def turnaround_seconds(self, victim: str, ticks: int) -> float:
        """Return the median of the ticks' 99th percentiles: one of a single second's requests is too noisy."""
        return _median(_newest(self._turnaround.get(victim, ()), ticks))

    def slowdown(self, victim: str, ticks: int) -> float:
        """Return the median of the ticks' slowdowns; NaN where none is known."""
        return _median(_newest(self._slowdown.get(victim, ()), ticks))

    def held_up(self, bystander: str, ticks: int) -> float:
        """Return the mean of what others and limits above cost a bystander; NaN where that is not measured."""
        newest = _newest(self._held_up.get(bystander, ()), ticks)
        return _mean(newest) if newest else np.nan

    def held_up_lately(self, bystander: str) -> float:
        """Return the same of a cgroup that was not watched before, over the few ticks that are still known."""
        newest = [value for seen in self._observations if (value := _held_up(seen, bystander)) == value]
        return _mean(newest) if newest else np.nan

    def state(self, pair: Pair) -> VictimState:
        """Return the newest tick of a pair's victim."""
        states = self._states.get(pair)
        return states[-1] if states else UNKNOWN_STATE

    def worst_state(self, pair: Pair) -> VictimState:
        """Return the worst of a victim's last ticks in each respect; NaN, which compares with nothing, of too few."""
        states = [state for state in self._states.get(pair, ()) if state.lost == state.lost][-_BEFORE_TICKS:]
        if len(states) < _FEWEST_BEFORE:
            return UNKNOWN_STATE
        slowdowns = [state.slowdown for state in states if state.slowdown == state.slowdown]
        return VictimState(
            max(state.lost for state in states),
            min(state.progress_cores for state in states),
            max(slowdowns, default=np.nan),
        )

    def _extended(
        self, known: dict[Key, deque[Value]], wanted: set[Key], value_of: Callable[[Observation, Key], Value]
    ) -> dict[Key, deque[Value]]:
        found: dict[Key, deque[Value]] = {}
        for key in wanted:
            series = known.get(key)
            if series is None:
                earlier = list(self._observations)
                series = deque((value_of(seen, key) for seen in earlier[:-1]), maxlen=_TICKS)
            series.append(value_of(self._observations[-1], key))
            found[key] = series
        return found


def state_of(observation: Observation, pair: Pair) -> VictimState:
    """Return the state of a pair's victim in one tick; its loss is that of other resources, and of the
    pair's own resource the part without a culprit."""
    row = observation.rows.get(pair.victim)
    if row is None:
        return UNKNOWN_STATE
    lost = sum(observation.lost_by(pair.victim, resource) for resource in observation.lost if resource != pair.resource)
    lost += observation.unexplained(pair.victim, pair.resource)
    slowdown = np.nan if observation.slowdown is None else float(observation.slowdown[row])
    return VictimState(lost, observation.used_by(pair.victim), slowdown)


def _held_up(observation: Observation, path: str) -> float:
    row = observation.rows.get(path)
    return np.nan if observation.held_up is None or row is None else float(observation.held_up[row])


def _throttled(observation: Observation) -> Floats:
    above = observation.throttled_above
    return observation.throttled if above is None else observation.throttled + above


def _of(column_of: Callable[[Observation], Floats | None]) -> Callable[[Observation, str], float]:
    def value(observation: Observation, path: str) -> float:
        row, column = observation.rows.get(path), column_of(observation)
        return float(column[row]) if column is not None and row is not None else np.nan

    return value


def _newest(series: Iterable[float], ticks: int) -> list[float]:
    """Return the numbers of the newest ticks."""
    return [each for each in list(series)[-ticks:] if each == each]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else np.nan
