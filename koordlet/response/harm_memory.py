"""Memory of rungs that made a victim worse off: barred for a while, longer each time, and freezing for good."""

import math
from dataclasses import dataclass, field

from koordlet.response.settings import ResponseSettings

FREEZE = "freeze"


@dataclass
class HarmMemory:
    """Rungs of one culprit by name, with how often each was at fault, and until when it is barred."""

    settings: ResponseSettings
    _found: dict[str, tuple[int, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, rung: str, now: float) -> None:
        """Take note that a rung was at fault.

        Once may be chance: a service that has nothing to do for a few ticks looks as if it had stopped, and then
        recovers. The rung is barred for the hold only; from the second time on for the time that rungs without effect
        are remembered, twice as long each time. Freezing a holder of a lock stops its victim for as long as it lasts,
        so that one suspicion is enough.
        """
        times = self._found.get(rung, (0, 0.0))[0] + 1
        settings = self.settings
        lasts = settings.hold_seconds if times == 1 else settings.remember_seconds * 2.0 ** min(times - 2, 10)
        self._found[rung] = (times, now + lasts)
        self._found[FREEZE] = (1, math.inf)

    def bars(self, rung: str, now: float) -> bool:
        """Return whether a rung may not be applied."""
        return now < self._found.get(rung, (0, -math.inf))[1]
