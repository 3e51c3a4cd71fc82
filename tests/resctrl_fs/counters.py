"""Monitoring counters by RMID, as the test sets them.

A counter is a base value plus a rate since it was set, so bandwidth can flow while the product samples it; or
it cannot be read at all.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Unreadable = Literal["Unavailable", "Error"]


@dataclass(frozen=True, slots=True)
class Counter:
    """`value` bytes at `since_seconds`, growing by `bytes_per_second`."""

    value: int
    bytes_per_second: float
    since_seconds: float

    def at(self, now_seconds: float) -> int:
        return self.value + int(self.bytes_per_second * (now_seconds - self.since_seconds))


class Counters:
    """Readings by (rmid, event, domain). An RMID that was never set reads 0."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counters: dict[tuple[int, str, int], Counter] = {}
        self._unreadable: dict[tuple[int, str, int], tuple[Unreadable, bool]] = {}

    def set_value(self, rmid: int, event: str, domain: int, value: int) -> None:
        """Set the counter to `value` and make it readable; a rate keeps flowing from there."""
        key = (rmid, event, domain)
        self._unreadable.pop(key, None)
        rate = self._counters[key].bytes_per_second if key in self._counters else 0.0
        self._counters[key] = Counter(value, rate, self._clock())

    def set_rate(self, rmid: int, event: str, domain: int, bytes_per_second: float) -> None:
        """Let the counter grow from its present value."""
        key = (rmid, event, domain)
        now = self._clock()
        present = self._counters[key].at(now) if key in self._counters else 0
        self._counters[key] = Counter(present, bytes_per_second, now)

    def set_unreadable(self, rmid: int, event: str, domain: int, reading: Unreadable, is_once: bool = False) -> None:
        """Make reads answer `reading`: until set_value, or for the next read only."""
        self._unreadable[(rmid, event, domain)] = (reading, is_once)

    def clear(self, rmid: int) -> None:
        """Start the bandwidth counters of a fresh owner from 0; occupancy belongs to the cache and stays."""
        for table in (self._counters, self._unreadable):
            for key in [key for key in table if key[0] == rmid and key[1] != "llc_occupancy"]:
                del table[key]

    def reset_domain(self, rmid: int, event: str, domain: int) -> None:
        """After an event configuration change: 0, and the next read is Unavailable."""
        self._counters.pop((rmid, event, domain), None)
        self.set_unreadable(rmid, event, domain, "Unavailable", is_once=True)

    def occupancy_bytes(self, rmid: int) -> int:
        """Return the largest occupancy of the RMID in any domain."""
        now = self._clock()
        found = [
            counter.at(now)
            for (owner, event, _), counter in self._counters.items()
            if (owner, event) == (rmid, "llc_occupancy")
        ]
        return max(found, default=0)

    def read(self, rmid: int, event: str, domain: int) -> int | Unreadable:
        key = (rmid, event, domain)
        if key in self._unreadable:
            reading, is_once = self._unreadable[key]
            if is_once:
                del self._unreadable[key]
            return reading
        return self._counters[key].at(self._clock()) if key in self._counters else 0

    def read_sum(self, rmids: list[int], event: str, domain: int) -> int | Unreadable:
        """Sum a control group and its monitor groups; one readable part suffices, as in the kernel."""
        readings = [self.read(rmid, event, domain) for rmid in rmids]
        values = [reading for reading in readings if isinstance(reading, int)]
        if values:
            return sum(values)
        return next(reading for reading in readings if not isinstance(reading, int))
