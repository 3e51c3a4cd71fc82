"""Memory of rungs that made a victim worse off: barred for a while, longer each time, and freezing for good."""

import math
from dataclasses import dataclass, field

from koordlet.response.history import History, Pair
from koordlet.response.observation import Observation
from koordlet.response.rungs.limits import loss_budget
from koordlet.response.settings import ResponseSettings
from koordlet.response.trial import VictimState, has_recovered

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


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """A rung that was taken back because a victim fared worse: at fault if the victim recovers."""

    rung: str
    pair: Pair
    before: VictimState
    until_seconds: float


@dataclass
class Suspicions:
    """Rungs of one culprit that were taken back and may have been at fault."""

    _open: list[_Suspicion] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def pairs(self) -> list[Pair]:
        """Return the pairs whose series are needed."""
        return [suspicion.pair for suspicion in self._open]

    def add(self, rung: str, pair: Pair, before: VictimState, until_seconds: float) -> None:
        """Suspect a rung that is taken back now; `before` is how the victim fared in its worst tick before it."""
        self._open.append(_Suspicion(rung, pair, before, until_seconds))

    def proved(self, observation: Observation, history: History, settings: ResponseSettings) -> list[str]:
        """Return the rungs without which a victim has recovered, and forget these and those whose time is up."""
        found, left = [], []
        for suspicion in self._open:
            pair = suspicion.pair
            budget = loss_budget(observation, pair.victim, pair.resource, settings)
            if has_recovered(suspicion.before, history.state(pair), budget=budget):
                found.append(suspicion.rung)
            elif observation.now_seconds < suspicion.until_seconds:
                left.append(suspicion)
        self._open = left
        return found
