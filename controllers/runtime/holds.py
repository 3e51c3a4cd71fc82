"""Targets that must not be written yet: a write is under way, its result was not seen yet, or it failed. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from cluster.rate_limit import Backoff
from cluster.store import newer_version
from controllers.runtime.writes import Target

UNSEEN_SECONDS = 60.0
"""Time after which a result that no watch showed is given up: the object may have come and gone in between."""

SWEEP_AT = 1000
"""Number of holds from which old ones are looked for."""


@dataclass(slots=True)
class _Hold:
    in_flight: bool = False
    version: str = ""
    seen_by_seconds: float = 0.0
    failures: int = 0
    not_before_seconds: float = 0.0


class Holds:
    """Holds by target; times are monotonic seconds."""

    def __init__(self, backoff: Backoff, random: Random | None = None) -> None:
        self._backoff = backoff
        self._random = random or Random()
        self._holds: dict[Target, _Hold] = {}
        self._sweep_at = SWEEP_AT

    def __len__(self) -> int:
        return len(self._holds)

    def held(self, target: Target, version_of: Callable[[Target], str], now_seconds: float) -> bool:
        """Return whether a write has to wait; `version_of` gives the version in the copy, empty for no object."""
        hold = self._holds.get(target)
        if hold is None:
            return False
        if hold.in_flight or now_seconds < hold.not_before_seconds:
            return True
        if hold.version and now_seconds < hold.seen_by_seconds and self._behind(version_of(target), hold.version):
            return True
        if not hold.failures:
            del self._holds[target]
        return False

    @staticmethod
    def _behind(seen: str, expected: str) -> bool:
        return not seen or newer_version(expected, seen)

    def begin(self, target: Target) -> None:
        """Note that a write is under way."""
        self._holds.setdefault(target, _Hold()).in_flight = True

    def done(self, target: Target, version: str, now_seconds: float) -> None:
        """Note a write that succeeded and left the object at `version`; empty where it left none."""
        if not version:
            self._holds.pop(target, None)
            return
        self._holds[target] = _Hold(version=version, seen_by_seconds=now_seconds + UNSEEN_SECONDS)
        self._sweep(now_seconds)

    def failed(self, target: Target, now_seconds: float) -> float:
        """Note a write that failed; returns the seconds to wait."""
        hold = self._holds.setdefault(target, _Hold())
        delay = self._backoff.delay_seconds(hold.failures, self._random)
        hold.in_flight, hold.failures = False, hold.failures + 1
        hold.not_before_seconds = now_seconds + delay
        self._sweep(now_seconds)
        return delay

    def _sweep(self, now_seconds: float) -> None:
        """Let go of old holds: objects that are gone, and targets that are no longer asked for, have no other end."""
        if len(self._holds) < self._sweep_at:
            return
        self._holds = {
            key: each
            for key, each in self._holds.items()
            if each.in_flight or max(each.not_before_seconds, each.seen_by_seconds) + UNSEEN_SECONDS > now_seconds
        }
        self._sweep_at = max(SWEEP_AT, 2 * len(self._holds))

    def dropped(self, target: Target) -> None:
        """Note a write that was never sent."""
        hold = self._holds.get(target)
        if hold is not None:
            hold.in_flight = False
            if not hold.failures and not hold.version:
                del self._holds[target]

    def clear(self) -> None:
        """Forget everything but what is under way."""
        self._holds = {target: _Hold(in_flight=True) for target, hold in self._holds.items() if hold.in_flight}
