"""Trips of the kernel's tripwire, answered one after the other by the thread that holds the lock of the steps.

A step that plans and writes hundreds of settings serves trips between two of them: the first answer to harm does not
wait for what is less urgent.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from probes.tripwire import Trip

_IGNORED_NS = 1_000_000_000
"""Time for which trips of a pair are ignored after one was: what decides changes from tick to tick."""
_MAX_IGNORED_PAIRS = 10_000
_LOOK_SECONDS = 0.005
"""Pauses between looks for an answer while a step holds the lock: until then no other trip is taken."""


@dataclass(slots=True)
class _Waiting:
    """A trip that waits for its answer."""

    trip: Trip
    outcome: str = ""
    error: Exception | None = None
    is_done: bool = False


class TripAnswers:
    """Takes trips from the thread of the fast path; `serve` is for the holder of the lock."""

    def __init__(self, lock: threading.Lock, respond: Callable[[Trip], str]) -> None:
        """`respond` returns the outcome: acted, ignored, late."""
        self._lock = lock
        self._respond = respond
        self._waiting: deque[_Waiting] = deque()
        self._ignored_until_ns: dict[tuple[int, int], int] = {}
        """Times until which trips of pairs are ignored, by cgroup ids; used by the fast path's thread alone."""
        self.counts: Counter[str] = Counter()
        """Trips by outcome."""

    def take(self, trip: Trip) -> str:
        """Have a trip answered and return the outcome.

        A pair whose trip was ignored is not looked at again for a tick, however often it trips. Raises what `respond`
        raises.
        """
        pair = (trip.victim, trip.culprit)
        if trip.at_ns < self._ignored_until_ns.get(pair, 0):
            outcome = "ignored"
        else:
            waiting = _Waiting(trip)
            self._waiting.append(waiting)
            while not waiting.is_done:
                if self._lock.acquire(timeout=_LOOK_SECONDS):
                    try:
                        self.serve()
                    finally:
                        self._lock.release()
            if waiting.error is not None:
                raise waiting.error
            outcome = waiting.outcome
            if outcome == "ignored":
                if len(self._ignored_until_ns) >= _MAX_IGNORED_PAIRS:
                    self._ignored_until_ns.clear()
                self._ignored_until_ns[pair] = trip.at_ns + _IGNORED_NS
        self.counts[outcome] += 1
        return outcome

    def serve(self) -> None:
        """Answer the trips that wait; with the lock. What fails is raised where the trip was taken, not here."""
        while self._waiting:
            one = self._waiting.popleft()
            try:
                one.outcome = self._respond(one.trip)
            except Exception as error:  # noqa: BLE001 - a step that is half written goes on
                one.error = error
            finally:
                one.is_done = True
