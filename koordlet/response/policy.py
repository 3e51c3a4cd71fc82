"""From verdicts to actions: who may be acted upon for whom, one ladder for each culprit and resource.

Rules that hold before any rung is chosen:
- A culprit must be a cgroup of a lower class than the victim (BE < unclassed < LS < LSR < LSE < SYSTEM) and is never
  LSR or above: a culprit that is itself protected is left alone, and `refused` counts it. Of two that hurt each other
  therefore at most one is acted upon.
- What is known by correlation alone goes no further than the mild rungs, and for a victim below LS, of which nobody
  said that it must not wait, nothing is done that anybody would feel.
- An ancestor or a descendant of the victim is no neighbour.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api.intents import Intent, Strength
from api.verdicts import Culprit, How, Verdict
from koordlet.response.episode import Episode, ResponseStep
from koordlet.response.ladders import LADDERS, Case, branch
from koordlet.response.observation import PROTECTED_RANK, SENSITIVE_RANK, Observation
from koordlet.response.settings import ResponseSettings

_HISTORY_TICKS = 60


@dataclass(frozen=True, slots=True)
class _Past:
    """What is remembered of a culprit that was let go."""

    hold_seconds: float
    useless: Mapping[str, float]
    ended: float


class ResponsePolicy:
    """Feed it every tick; it answers with all that is wanted in it."""

    def __init__(self, settings: ResponseSettings | None = None) -> None:
        self.settings = settings or ResponseSettings()
        self.refused: Counter[str] = Counter()
        """Accusations not answered, by why: protected, relative, small, gone, ourselves, no_ladder."""
        self.steps: list[ResponseStep] = []
        """What happened in the last tick."""
        self._episodes: dict[tuple[str, str], Episode] = {}
        self._lost: dict[tuple[str, str], deque[float]] = {}
        self._turnaround: dict[str, deque[float]] = {}
        self._held: dict[str, deque[float]] = {}
        self._past: dict[tuple[str, str], _Past] = {}

    @property
    def standing(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Rungs that stand, by culprit and resource."""
        return {
            key: tuple(pull.rung.name for pull in episode.pulls)
            for key, episode in sorted(self._episodes.items())
            if episode.active
        }

    def step(self, sight: Observation) -> list[Intent]:
        """All that is wanted in this tick, in a fixed order."""
        accused = self._accused(sight)
        self._remember(sight, accused)
        self.steps = []
        for key in sorted({*accused, *self._episodes}):
            case, strongest = accused.get(key, (None, Strength.INVISIBLE))
            episode = self._episodes.get(key) or self._begin(key, sight.now_seconds)
            victim = case.victim if case else next((pull.case.victim for pull in episode.pulls), "")
            lost = self._lost.get((victim, key[1]), ())
            turnaround, held = self._turnaround.get(victim, ()), self._held.get(victim, ())
            self.steps += episode.step(sight, case, strongest, list(lost), list(turnaround), list(held))
            if case is None and not episode.active:
                self._end(key, sight.now_seconds)
        return [intent for key in sorted(self._episodes) for intent in self._episodes[key].intents()]

    def trip(self, sight: Observation, culprit: str, victim: str, *, resource: str, lost: float) -> list[Intent]:
        """The first rung at once, before any verdict; the following ticks confirm it or take it back.

        `lost` is in seconds per second at the moment of the trip.
        """
        key = (culprit, resource)
        if resource not in self.settings.resources or self._why_not(sight, victim, culprit):
            return []
        reason = f"{victim} loses {lost:.2f} s/s of {resource} to {culprit} at this moment"
        case = Case(culprit, victim, resource, reason, "", lost)
        episode = self._episodes.get(key) or self._begin(key, sight.now_seconds)
        self.steps = episode.pull_first(sight, case, lost)
        return list(episode.intents()) if self.steps else []

    def _accused(self, sight: Observation) -> dict[tuple[str, str], tuple[Case, Strength]]:
        """The gravest accusation of each culprit and resource that may be answered, and how far one may go."""
        found: dict[tuple[str, str], tuple[float, Case, Strength]] = {}
        for verdict, culprit in _named(sight.verdicts):
            why = self._reason_against(sight, verdict, culprit)
            if why:
                self.refused[why] += 1
                continue
            lost = culprit.share * verdict.lost_seconds_per_second
            case = Case(
                culprit.path,
                verdict.victim,
                verdict.resource,
                f"{verdict.victim} loses {lost:.2f} s/s of {verdict.resource} to {culprit.path}",
                f"{verdict.victim}|{verdict.rule}",
                lost,
            )
            strongest = self.settings.max_strength
            if culprit.how is How.CORRELATED:
                strongest = min(strongest, Strength.MILD)
            if sight.rank(verdict.victim) < SENSITIVE_RANK:
                strongest = Strength.INVISIBLE
            key = (culprit.path, verdict.resource)
            if key not in found or lost > found[key][0]:
                found[key] = (lost, case, strongest)
        return {key: (case, strongest) for key, (_lost, case, strongest) in found.items()}

    def _reason_against(self, sight: Observation, verdict: Verdict, culprit: Culprit) -> str:
        if verdict.resource not in self.settings.resources or verdict.resource not in LADDERS:
            return "no_ladder"
        if culprit.share < self.settings.min_culprit_share:
            return "small"
        return self._why_not(sight, verdict.victim, culprit.path)

    def _why_not(self, sight: Observation, victim: str, culprit: str) -> str:
        if not culprit.startswith("/") or not branch(culprit, victim):
            return "relative"
        if culprit not in sight.rows:
            return "gone"
        own = sight.reach.own
        if own and (own == culprit or own.startswith(culprit + "/")):
            return "ourselves"
        rank = sight.highest_rank(culprit)
        return "protected" if rank >= PROTECTED_RANK or rank >= sight.rank(victim) else ""

    def _remember(self, sight: Observation, accused: Mapping[tuple[str, str], tuple[Case, Strength]]) -> None:
        watched = {(case.victim, case.resource) for case, _strongest in accused.values()}
        for (_culprit, resource), episode in self._episodes.items():
            watched |= {(pull.case.victim, resource) for pull in episode.pulls}
        watched |= {(verdict.victim, verdict.resource) for verdict in sight.verdicts}
        self._lost = {key: self._lost.get(key, deque(maxlen=_HISTORY_TICKS)) for key in watched}
        for (victim, resource), series in self._lost.items():
            series.append(sight.lost_by(victim, resource))
        victims = {victim for victim, _resource in watched}
        for told, column in ((self._turnaround, sight.turnaround_seconds), (self._held, sight.held)):
            for gone in told.keys() - victims:
                del told[gone]
            for victim in victims:
                row = sight.rows.get(victim)
                series = told.setdefault(victim, deque(maxlen=_HISTORY_TICKS))
                series.append(float(column[row]) if row is not None else math.nan)

    def _begin(self, key: tuple[str, str], now: float) -> Episode:
        settings = self.settings
        past = self._past.get(key)
        episode = Episode(key[0], key[1], settings, settings.hold_seconds)
        if past is not None and now - past.ended <= settings.remember_seconds:
            episode.hold_seconds = min(past.hold_seconds * settings.hold_factor, settings.max_hold_seconds)
            episode.useless = dict(past.useless)
        self._episodes[key] = episode
        return episode

    def _end(self, key: tuple[str, str], now: float) -> None:
        episode = self._episodes.pop(key)
        if episode.acted:
            self._past[key] = _Past(episode.hold_seconds, episode.useless, now)
        limit = now - self.settings.remember_seconds
        self._past = {each: past for each, past in self._past.items() if past.ended > limit}


def _named(verdicts: tuple[Verdict, ...]) -> Iterator[tuple[Verdict, Culprit]]:
    return ((verdict, culprit) for verdict in verdicts for culprit in verdict.culprits)
