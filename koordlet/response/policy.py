"""Response policy: which verdicts are answered, with one episode for each culprit and resource.

Rules that hold before any rung is chosen:
- A culprit must be a cgroup of a lower class than the victim (BE < unclassed < LS < LSR < LSE < SYSTEM) and is never
  LSR or above; `skipped` counts those that are protected. Of two cgroups that hurt each other at most one is acted
  upon.
- A culprit known by correlation alone gets no more than the mild rungs; for a victim below LS, which may be made to
  wait, only the invisible rungs are applied.
- An ancestor or a descendant of the victim is never a culprit.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api.cgroup_path import competing_ancestor
from api.intents import Intent, Strength
from api.qos import PROTECTED_RANK, SENSITIVE_RANK
from api.verdicts import Culprit, How, Verdict
from koordlet.response.episode import Episode, ResponseStep
from koordlet.response.ladders import LADDERS, Interference
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings

_HISTORY_TICKS = 60


@dataclass(frozen=True, slots=True)
class _PastEpisode:
    """Settings kept from an episode that has ended."""

    hold_seconds: float
    ineffective: Mapping[str, float]
    ended: float


class ResponsePolicy:
    """State of the response between ticks: `step` every tick returns all its intents."""

    def __init__(self, settings: ResponseSettings | None = None) -> None:
        self.settings = settings or ResponseSettings()
        self.skipped: Counter[str] = Counter()
        """Culprits not acted upon, by reason: protected, same_branch, small_share, gone, own_cgroup, no_ladder."""
        self.steps: list[ResponseStep] = []
        """Steps of the last tick."""
        self._episodes: dict[tuple[str, str], Episode] = {}
        self._lost: dict[tuple[str, str], deque[float]] = {}
        self._turnaround: dict[str, deque[float]] = {}
        self._throttled: dict[str, deque[float]] = {}
        self._past: dict[tuple[str, str], _PastEpisode] = {}

    @property
    def active_rungs(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Return the names of the applied rungs by culprit and resource."""
        return {
            key: tuple(applied.rung.name for applied in episode.applied_rungs)
            for key, episode in sorted(self._episodes.items())
            if episode.active
        }

    def step(self, observation: Observation) -> list[Intent]:
        """Return all intents of this tick, in a fixed order."""
        interferences = self._interferences(observation)
        self._record_series(observation, interferences)
        self.steps = []
        for key in sorted({*interferences, *self._episodes}):
            interference, max_strength = interferences.get(key, (None, Strength.INVISIBLE))
            episode = self._episodes.get(key) or self._begin(key, observation.now_seconds)
            victim = (
                interference.victim
                if interference
                else next((applied.interference.victim for applied in episode.applied_rungs), "")
            )
            lost = self._lost.get((victim, key[1]), ())
            turnaround, throttled = self._turnaround.get(victim, ()), self._throttled.get(victim, ())
            self.steps += episode.step(
                observation, interference, max_strength, list(lost), list(turnaround), list(throttled)
            )
            if interference is None and not episode.active:
                self._end(key, observation.now_seconds)
        return [intent for key in sorted(self._episodes) for intent in self._episodes[key].intents()]

    def trip(self, observation: Observation, culprit: str, victim: str, *, resource: str, lost: float) -> list[Intent]:
        """Apply the first rung before any verdict; the following ticks keep or revert it.

        `lost` is in seconds per second at the time of the trip.
        """
        key = (culprit, resource)
        if resource not in self.settings.resources or self._pair_skip_reason(observation, victim, culprit):
            return []
        reason = f"{victim} loses {lost:.2f} s/s of {resource} to {culprit} now"
        interference = Interference(culprit, victim, resource, reason, "", lost)
        episode = self._episodes.get(key) or self._begin(key, observation.now_seconds)
        self.steps = episode.apply_first(observation, interference, lost)
        return list(episode.intents()) if self.steps else []

    def _interferences(self, observation: Observation) -> dict[tuple[str, str], tuple[Interference, Strength]]:
        """Return the worst interference of each culprit and resource that may be answered, with the strongest rung
        allowed."""
        found: dict[tuple[str, str], tuple[float, Interference, Strength]] = {}
        for verdict, culprit in _named_culprits(observation.verdicts):
            why = self._skip_reason(observation, verdict, culprit)
            if why:
                self.skipped[why] += 1
                continue
            lost = culprit.share * verdict.lost_seconds_per_second
            interference = Interference(
                culprit.path,
                verdict.victim,
                verdict.resource,
                f"{verdict.victim} loses {lost:.2f} s/s of {verdict.resource} to {culprit.path}",
                f"{verdict.victim}|{verdict.rule}",
                lost,
            )
            max_strength = self.settings.max_strength
            if culprit.how is How.CORRELATED:
                max_strength = min(max_strength, Strength.MILD)
            if observation.rank(verdict.victim) < SENSITIVE_RANK:
                max_strength = Strength.INVISIBLE
            key = (culprit.path, verdict.resource)
            if key not in found or lost > found[key][0]:
                found[key] = (lost, interference, max_strength)
        return {key: (interference, max_strength) for key, (_lost, interference, max_strength) in found.items()}

    def _skip_reason(self, observation: Observation, verdict: Verdict, culprit: Culprit) -> str:
        if verdict.resource not in self.settings.resources or verdict.resource not in LADDERS:
            return "no_ladder"
        if culprit.share < self.settings.min_culprit_share:
            return "small_share"
        return self._pair_skip_reason(observation, verdict.victim, culprit.path)

    def _pair_skip_reason(self, observation: Observation, victim: str, culprit: str) -> str:
        if not culprit.startswith("/") or not competing_ancestor(culprit, victim):
            return "same_branch"
        if culprit not in observation.rows:
            return "gone"
        own = observation.capabilities.own
        if own and (own == culprit or own.startswith(culprit + "/")):
            return "own_cgroup"
        rank = observation.highest_rank(culprit)
        return "protected" if rank >= PROTECTED_RANK or rank >= observation.rank(victim) else ""

    def _record_series(
        self, observation: Observation, interferences: Mapping[tuple[str, str], tuple[Interference, Strength]]
    ) -> None:
        watched = {
            (interference.victim, interference.resource) for interference, _max_strength in interferences.values()
        }
        for (_culprit, resource), episode in self._episodes.items():
            watched |= {(applied.interference.victim, resource) for applied in episode.applied_rungs}
        watched |= {(verdict.victim, verdict.resource) for verdict in observation.verdicts}
        self._lost = {key: self._lost.get(key, deque(maxlen=_HISTORY_TICKS)) for key in watched}
        for (victim, resource), series in self._lost.items():
            series.append(observation.lost_by(victim, resource))
        victims = {victim for victim, _resource in watched}
        for series_of, column in (
            (self._turnaround, observation.turnaround_seconds),
            (self._throttled, observation.throttled),
        ):
            for gone in series_of.keys() - victims:
                del series_of[gone]
            for victim in victims:
                row = observation.rows.get(victim)
                series = series_of.setdefault(victim, deque(maxlen=_HISTORY_TICKS))
                series.append(float(column[row]) if row is not None else math.nan)

    def _begin(self, key: tuple[str, str], now: float) -> Episode:
        settings = self.settings
        past = self._past.get(key)
        episode = Episode(key[0], key[1], settings, settings.hold_seconds)
        if past is not None and now - past.ended <= settings.remember_seconds:
            episode.hold_seconds = min(past.hold_seconds * settings.hold_factor, settings.max_hold_seconds)
            episode.ineffective = dict(past.ineffective)
        self._episodes[key] = episode
        return episode

    def _end(self, key: tuple[str, str], now: float) -> None:
        episode = self._episodes.pop(key)
        if episode.acted:
            self._past[key] = _PastEpisode(episode.hold_seconds, episode.ineffective, now)
        limit = now - self.settings.remember_seconds
        self._past = {each: past for each, past in self._past.items() if past.ended > limit}


def _named_culprits(verdicts: tuple[Verdict, ...]) -> Iterator[tuple[Verdict, Culprit]]:
    return ((verdict, culprit) for verdict in verdicts for culprit in verdict.culprits)
