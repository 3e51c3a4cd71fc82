"""Pace of evictions on a node: one at a time, with a pause after each, and so many an hour. Pure."""

import math
from collections import deque

_HOUR_SECONDS = 3600.0


class Pace:
    """Counts evictions that began; times are monotonic seconds."""

    def __init__(self, cooldown_seconds: float, per_hour: int) -> None:
        self._cooldown_seconds = cooldown_seconds
        self._per_hour = per_hour
        self._begun: deque[float] = deque()

    def reason(self, now_seconds: float) -> str:
        """Reason why none may begin now; empty if one may."""
        while self._begun and self._begun[0] <= now_seconds - _HOUR_SECONDS:
            self._begun.popleft()
        last = self._begun[-1] if self._begun else -math.inf
        if now_seconds - last < self._cooldown_seconds:
            return "the last eviction was too recent"
        return f"the node has seen {self._per_hour} evictions in an hour" if len(self._begun) >= self._per_hour else ""

    def note(self, now_seconds: float) -> None:
        """Count one that began."""
        self._begun.append(now_seconds)
