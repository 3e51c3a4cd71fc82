"""Meter of one resctrl group: readings as cumulative bytes that never shrink, extrapolated between turns. Pure.

Bandwidth counters belong to a monitor id, not to a cgroup: a reading below the last one means that the counter
began again (the id was reused, or an event was configured anew), and what it shows was counted since.
"""

import math
from dataclasses import dataclass, field

from probes.resctrl_tree import Readings

BANDWIDTH = ("mbm_total_bytes", "mbm_local_bytes")


@dataclass(frozen=True, slots=True)
class Metered:
    """Columns of one group; NaN where there is no number."""

    llc_occupancy_bytes: float = math.nan
    mbm_total_bytes: float = math.nan
    mbm_local_bytes: float = math.nan


@dataclass(slots=True)
class _Turn:
    """The stretch since measuring began last."""

    since_seconds: float
    at_start: dict[str, float]
    base: dict[tuple[str, int], float] = field(default_factory=dict)


class Meter:
    """Sums of one group's readings over its turns.

    While it rests (`rest`), bandwidth is assumed to go on as in the last turn, like a multiplexed perf event's count,
    and occupancy to stay. Time is in seconds on any one clock.
    """

    def __init__(self) -> None:
        self._bytes = dict.fromkeys(BANDWIDTH, 0.0)
        self._rates = dict.fromkeys(BANDWIDTH, math.nan)
        self._last = Metered()
        self._turn: _Turn | None = None
        self._rested_seconds = 0.0

    def advance(self, now_seconds: float, readings: Readings) -> Metered:
        """Take a reading; begins a turn if none is under way."""
        turn = self._turn or self._begin(now_seconds)
        for (event, domain), value in readings.items():
            if event in BANDWIDTH and not math.isnan(value):
                base = turn.base.get((event, domain), 0.0)
                self._bytes[event] += value - base if value >= base else value
                turn.base[event, domain] = value
        self._last = Metered(
            _sum(readings, "llc_occupancy"),
            *(self._bytes[event] if not math.isnan(_sum(readings, event)) else math.nan for event in BANDWIDTH),
        )
        return self._last

    def rest(self, now_seconds: float) -> None:
        """End the turn."""
        if self._turn is None:
            return
        lasted = now_seconds - self._turn.since_seconds
        for event in BANDWIDTH:
            measured = self._bytes[event] - self._turn.at_start[event]
            self._rates[event] = measured / lasted if lasted > 0 and event in self._measured() else math.nan
        self._turn, self._rested_seconds = None, now_seconds

    def assumed(self, now_seconds: float) -> Metered:
        """The estimate at a moment of rest."""
        rested = now_seconds - self._rested_seconds
        return Metered(
            self._last.llc_occupancy_bytes,
            *(self._bytes[event] + self._rates[event] * rested for event in BANDWIDTH),
        )

    def _begin(self, now_seconds: float) -> _Turn:
        estimate = self.assumed(now_seconds)
        for event in BANDWIDTH:
            value = getattr(estimate, event)
            self._bytes[event] = self._bytes[event] if math.isnan(value) else value
        self._turn = _Turn(now_seconds, dict(self._bytes))
        return self._turn

    def _measured(self) -> set[str]:
        return {event for event, _ in self._turn.base} if self._turn else set()


def _sum(readings: Readings, event: str) -> float:
    """Over all domains; NaN if any of them gives no number or there is none."""
    values = [value for (name, _), value in readings.items() if name == event]
    return sum(values) if values else math.nan
