"""A rung of an episode while it stands: on trial, held, kept or lifted, with the ticks that it is judged by."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from api.intents import Intent
from koordlet.response.history import History, Pair
from koordlet.response.limit_control import LimitState
from koordlet.response.observation import Observation
from koordlet.response.rungs.rung import Interference, Rung
from koordlet.response.settings import ResponseSettings
from koordlet.response.trial import VictimState

_MOST_TICKS = 60
"""Ticks with a rung that are kept for comparisons."""


class Phase(StrEnum):
    """How much is known of a rung."""

    TRIAL = "trial"
    HELD = "held"
    """The loss is below its budget, or little above it; whether that is the rung's doing is not shown."""
    KEPT = "kept"


@dataclass
class AppliedRung:
    """A rung with its trial."""

    rung: Rung
    interference: Interference
    intents: tuple[Intent, ...]
    at_seconds: float
    before: dict[str, float]
    """Claims on the culprit by victim before the rung was applied, the first that of the interference; NaN where it is
    not known."""
    worst_before: dict[str, VictimState]
    """State of each victim in its worst tick before."""
    turnaround_before: float
    peak_wanted: float
    ticks_before: dict[str, list[float]] = field(default_factory=dict)
    """The ticks behind `before`; empty where it is not known."""
    bystanders: dict[str, float] = field(default_factory=dict)
    """What others and limits above cost them before."""
    members: frozenset[str] = frozenset()
    """Cgroups within the culprit that were busy when it was applied."""
    woken: dict[str, int] = field(default_factory=dict)
    """Ticks in which a cgroup within the culprit that was idle before was held up, by path."""
    phase: Phase = Phase.TRIAL
    proof_seconds: float = 0.0
    """Time of the newest trial or lift."""
    lift_ticks: int = 0
    """Ticks until the lift ends; 0 while the rung is in effect."""
    lifted_for: int = 0
    on_ticks: dict[str, deque[float]] = field(default_factory=dict)
    """Claims by victim in the ticks that the rung was in effect, newest last."""
    compared: int = 0
    """Ticks with the rung that the present lift is compared with."""
    trips: int = 0
    """Trips of the pair while the rung was in effect."""
    lifts: int = 0
    is_refused: bool = False
    """The enforcer could not set it in the newest tick: its trial has not begun."""
    sent: bool = False
    limit_state: LimitState | None = None
    """State of the limit, for a rung that adjusts one."""
    floor: float = 0.0
    used_before: float = 0.0
    """What the culprit used when the rung was applied, in the unit of the limit."""
    helped: str = ""
    """The victim that a comparison showed it to help, of several."""
    used_seconds: float | None = None
    """Last time that the culprit waited for a victim that it yields to; None where that is not measured."""
    peak_victims_cores: float = 0.0
    """The most that its victims together used or waited for in a tick."""
    victims_wanted_seconds: float = 0.0
    """Last time that they wanted a part of it that counts."""

    @property
    def lifted(self) -> bool:
        """Return whether it is lifted for now."""
        return self.lift_ticks > 0

    def allowed_use(self) -> float:
        """Return the most that the culprit may use now, in the unit of `peak_wanted`."""
        return self.peak_wanted if self.limit_state is None else min(self.peak_wanted, self.limit_state.limit)

    def record(self, culprit: str, now: float, history: History, settings: ResponseSettings) -> None:
        """Add the newest tick's claims, if the rung was in effect in all of it."""
        if self.lifted or now - self.at_seconds <= settings.settle_seconds:
            return
        for victim in self.before:
            ticks = self.on_ticks.setdefault(victim, deque(maxlen=_MOST_TICKS))
            ticks.append(history.lost(Pair(culprit, victim, self.interference.resource), 1))

    def note_use(self, culprit: str, observation: Observation, settings: ResponseSettings) -> None:
        """Take note of whether a rung that makes the culprit yield does something for a victim in this tick.

        While the culprit waits for a victim, the victim runs where it would have to wait for the culprit otherwise:
        this shows that the rung is of use without taking it back.
        """
        if not self.rung.yields or self.lifted:
            return
        resource = self.interference.resource
        for victim in self.before:
            waited = observation.waits_for(culprit, victim, resource)
            if waited is None:
                return
            least = settings.loss_budget_seconds_per_second
            if resource == "cpu":
                least = settings.loss_budget_ratio * observation.used_by(victim)
            if waited > least or self.used_seconds is None:
                self.used_seconds = observation.now_seconds

    def note_victims(self, observation: Observation, settings: ResponseSettings) -> None:
        """Take note of whether its victims want CPU time at present."""
        wanted = sum(observation.wanted_by(victim) for victim in self.before)
        self.peak_victims_cores = max(self.peak_victims_cores, wanted)
        if wanted > self.peak_victims_cores * settings.quiet_ratio or self.is_refused:
            self.victims_wanted_seconds = observation.now_seconds

    def is_unused(self, now: float, seconds: float) -> bool | None:
        """Return whether no victim had anything from it for so long; None where that is not measured, and only a lift
        can show it."""
        return None if self.used_seconds is None else now - self.used_seconds >= seconds
