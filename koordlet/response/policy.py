"""Response policy: which verdicts are answered, with one episode for each culprit and resource.

Rules that hold before any rung is chosen:
- A culprit must be of a class that may be limited (`[response] limited_classes`, BE by default) and of a lower one than
  the victim (BE < unclassed < LS < LSR < LSE < SYSTEM), with all that lives in it, and is never LSR or above; `skipped`
  counts the others. Of two cgroups that hurt each other at most one is acted upon.
- A loss that the victim does not feel starts no action: its requests take as long as usual, or, where none are seen, it
  loses less than its budget. Losses within a pod are the pod's own, and those of the root cgroup nobody's service.
- A culprit known by correlation alone gets no more than the mild rungs; for a victim below LS, which may be made to
  wait, only the invisible rungs are applied.
- An ancestor or a descendant of the victim is never a culprit.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from api.cgroup_path import ROOT, competing_ancestor
from api.intents import Intent, Strength
from api.qos import PROTECTED_RANK, SENSITIVE_RANK
from api.verdicts import Culprit, How, Verdict
from koordlet.response.episode import Episode, ResponseStep
from koordlet.response.history import History
from koordlet.response.ladders import LADDERS, Interference, loss_budget
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings

_SEEN_BY_REQUESTS = frozenset({"cpu", "memory", "blockio", "cache", "memory_bandwidth"})
"""Resources whose loss lengthens the time from a request's arrival to its answer; queues of the network come after."""


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
        """Culprits not acted upon, by reason: protected, not_limited (its class, or one within it), same_branch,
        same_pod, root, small_share, gone, own_cgroup, no_ladder; and interferences that are `not_felt`."""
        self.steps: list[ResponseStep] = []
        """Steps of the last tick."""
        self._episodes: dict[tuple[str, str], Episode] = {}
        self._history = History()
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
        self._record(observation, [found for found, _most in interferences.values()])
        self.steps = []
        interferences = {key: (self._felt(observation, found), most) for key, (found, most) in interferences.items()}
        for key in sorted({*interferences, *self._episodes}):
            interference, max_strength = interferences.get(key, (None, Strength.INVISIBLE))
            episode = self._episodes.get(key) or self._begin(key, observation.now_seconds)
            self.steps += episode.step(observation, interference, max_strength, self._history)
            if interference is None and not episode.active:
                self._end(key, observation.now_seconds)
        return [intent for key in sorted(self._episodes) for intent in self._episodes[key].intents()]

    def trip(self, observation: Observation, culprit: str, victim: str, *, resource: str, lost: float) -> list[Intent]:
        """Apply the first rung before any verdict; the following ticks keep or revert it.

        `lost` is in seconds per second at the time of the trip.
        """
        culprit = observation.boundary_of(culprit)
        key = (culprit, resource)
        if resource not in self.settings.resources or self._pair_skip_reason(observation, victim, culprit):
            return []
        if not self._slows_down(victim, resource, unknown=True):
            self.skipped["not_felt"] += 1
            return []
        named, to = observation.name_of(victim), observation.name_of(culprit)
        reason = f"{named} loses {lost:.2f} s/s of {resource} to {to} now"
        interference = Interference(culprit, victim, resource, reason, "", lost)
        episode = self._episodes.get(key) or self._begin(key, observation.now_seconds)
        self.steps = episode.apply_first(observation, interference, lost, self._history)
        return list(episode.intents()) if self.steps else []

    def _interferences(self, observation: Observation) -> dict[tuple[str, str], tuple[Interference, Strength]]:
        """Return the worst interference of each culprit and resource that may be answered, with the strongest rung
        allowed."""
        found: dict[tuple[str, str], tuple[float, Interference, Strength]] = {}
        for verdict, culprit in _named_culprits(observation):
            why = self._skip_reason(observation, verdict, culprit)
            if why:
                self.skipped[why] += 1
                continue
            lost = culprit.share * verdict.lost_seconds_per_second
            interference = Interference(
                culprit.path,
                verdict.victim,
                verdict.resource,
                f"{observation.name_of(verdict.victim)} loses {lost:.2f} s/s of {verdict.resource} "
                f"to {observation.name_of(culprit.path)}",
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

    def _felt(self, observation: Observation, interference: Interference) -> Interference:
        """Return the interference, marked where its victim does not feel it."""
        budget = loss_budget(observation, interference.victim, interference.resource, self.settings)
        if self._slows_down(interference.victim, interference.resource, unknown=interference.lost > budget):
            return interference
        self.skipped["not_felt"] += 1
        return replace(interference, felt=False)

    def _slows_down(self, victim: str, resource: str, *, unknown: bool) -> bool:
        """Return whether the victim's requests take longer than usual; `unknown` where that is not measured."""
        slowdown = self._history.slowdown(victim, self.settings.verify_ticks)
        if slowdown != slowdown or resource not in _SEEN_BY_REQUESTS:
            return unknown
        return slowdown > self.settings.felt_slowdown_ratio

    def _skip_reason(self, observation: Observation, verdict: Verdict, culprit: Culprit) -> str:
        if verdict.resource not in self.settings.resources or verdict.resource not in LADDERS:
            return "no_ladder"
        if culprit.share < self.settings.min_culprit_share:
            return "small_share"
        return self._pair_skip_reason(observation, verdict.victim, culprit.path)

    def _pair_skip_reason(self, observation: Observation, victim: str, culprit: str) -> str:
        if victim == ROOT:
            return "root"
        if not culprit.startswith("/") or not competing_ancestor(culprit, victim):
            return "same_branch"
        if culprit not in observation.rows:
            return "gone"
        if observation.same_pod(culprit, victim):
            return "same_pod"
        own = observation.capabilities.own
        if own and (own == culprit or own.startswith(culprit + "/")):
            return "own_cgroup"
        rank = observation.highest_rank(culprit)
        if rank >= PROTECTED_RANK or rank >= observation.rank(victim):
            return "protected"
        return "" if observation.classes_within(culprit) <= frozenset(self.settings.limited_classes) else "not_limited"

    def _record(self, observation: Observation, interferences: list[Interference]) -> None:
        for episode in self._episodes.values():
            interferences += [applied.interference for applied in episode.applied_rungs]
        victims = [verdict.victim for verdict in observation.verdicts]
        self._history.record(observation, [interference.pair for interference in interferences], victims)

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


def _named_culprits(observation: Observation) -> Iterator[tuple[Verdict, Culprit]]:
    """Yield each culprit of a verdict once; those below a directory of another user are that directory, together."""
    for verdict in observation.verdicts:
        merged: dict[str, Culprit] = {}
        for culprit in verdict.culprits:
            path = observation.boundary_of(culprit.path)
            before = merged.get(path)
            if before is not None:
                merged[path] = msgspec.structs.replace(before, share=min(before.share + culprit.share, 1.0))
            else:
                merged[path] = culprit if path == culprit.path else msgspec.structs.replace(culprit, path=path)
        yield from ((verdict, culprit) for culprit in merged.values())
