"""Response policy: which verdicts are answered, with one episode for each culprit and resource.

Rules that hold before any rung is chosen:
- A culprit must be of a class that may be limited (`[response] limited_classes`, BE by default) and of a lower one than
  the victim (BE < unclassed < LS < LSR < LSE < SYSTEM), with all that lives in it, and is never LSR or above; `skipped`
  counts the others. Of two cgroups that hurt each other at most one is acted upon.
- A victim may claim what it waits below its own share (entitlement.py), and limits take no more from others for it.
  A loss that the victim does not feel starts no action: its requests take as long as usual, or, where none are seen,
  its claim is less than its budget. Losses within a pod are the pod's own, those of the root cgroup no service's.
- A culprit known by correlation alone gets no more than the mild rungs; for a victim below LS, which may be made to
  wait, only the invisible rungs are applied. Freezing and eviction need two victims that feel it.
- Culprits that all lie in one directory of which nothing else is busy are limited there, once for all of them.
- An ancestor or a descendant of the victim is never a culprit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from api.cgroup_path import ROOT, competing_ancestor, is_below
from api.intents import Intent, Knob, Setting, Strength
from api.qos import PROTECTED_RANK, SENSITIVE_RANK
from api.verdicts import Culprit, How, Verdict
from koordlet.response.episode import Episode
from koordlet.response.folding import folded
from koordlet.response.harm_memory import HarmMemory
from koordlet.response.history import History, Pair
from koordlet.response.ladders import LADDERS
from koordlet.response.observation import Observation
from koordlet.response.rungs.limits import loss_budget
from koordlet.response.rungs.rung import Interference
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import Refused, ResponseStep

_SEEN_BY_REQUESTS = frozenset({"cpu", "memory", "blockio", "cache", "memory_bandwidth"})
"""Resources whose loss lengthens the time from a request's arrival to its answer; queues of the network come after."""


_MAX_HARMFUL = 1000
"""Culprits of which harmful rungs are remembered."""

Answer = tuple[Interference, Strength]
"""An interference with the strongest rung allowed for it."""


@dataclass(frozen=True, slots=True)
class _PastEpisode:
    """Settings kept from an episode that has ended."""

    hold_seconds: float
    ineffective: Mapping[tuple[str, str], float]
    ended: float
    barred_until: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """An intent that the enforcer did not carry out; `knob` is empty for an eviction or a reclaim."""

    target: str
    knob: str
    reach: Refused


class ResponsePolicy:
    """State of the response between ticks: `step` every tick returns all its intents."""

    def __init__(self, settings: ResponseSettings | None = None, *, is_dry_run: bool = False) -> None:
        """With `is_dry_run` no intent is carried out: only the first rung of each interference is shown."""
        self.settings = settings or ResponseSettings()
        self.is_dry_run = is_dry_run
        self.skipped: Counter[str] = Counter()
        """Culprits not acted upon, by reason: protected, not_limited (its class, or one within it), same_branch,
        same_pod, root, small_share, gone, own_cgroup, no_ladder; and interferences that are `not_felt`."""
        self.steps: list[ResponseStep] = []
        """Steps of the last tick, and before it those that the enforcer's refusals caused."""
        self._episodes: dict[tuple[str, str], Episode] = {}
        self._history = History()
        self._past: dict[tuple[str, str], _PastEpisode] = {}
        self._harmful: dict[tuple[str, str], HarmMemory] = {}
        self._exhausted: dict[tuple[str, str], float] = {}
        """Directories, acted upon as one, that had no rung left for a victim, with the time."""
        self._refusals: list[ResponseStep] = []

    @property
    def active_rungs(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Return the names of the rungs in effect by culprit and resource."""
        return {
            key: names
            for key, episode in sorted(self._episodes.items())
            if (names := tuple(one.rung.name for one in episode.applied_rungs if not one.lifted and not one.is_refused))
        }

    @property
    def held_weights(self) -> frozenset[str]:
        """Return the cgroups whose weight is lowered: the file does not say what they are entitled to."""
        return frozenset(
            intent.target
            for episode in self._episodes.values()
            for applied in episode.applied_rungs
            for intent in applied.intents
            if isinstance(intent, Setting) and intent.knob in (Knob.CPU_IDLE, Knob.CPU_WEIGHT)
        )

    def step(self, observation: Observation) -> list[Intent]:
        """Return all intents of this tick, in a fixed order."""
        interferences = self._interferences(observation)
        self._record(observation, interferences)
        self.steps, self._refusals = self._refusals, []
        answers = self._answers(observation, interferences)
        for key in sorted({*answers, *self._episodes}):
            answer = answers.get(key, [])
            episode = self._episodes.get(key) or self._begin(key, observation.now_seconds)
            answer = [(self._with_allowance(observation, each), most) for each, most in answer]
            if self.is_dry_run and not episode.active:
                shown = [self._is_shown(each.victim, observation.now_seconds) for each, _most in answer]
                answer = [
                    (replace(each, reason=f"{each.reason}; this would end up to {each.claim:.2f} s/s"), most)
                    for (each, most), was in zip(answer, shown, strict=True)
                    if not was
                ]
            self.steps += episode.step(observation, answer, self._history)
            self._exhausted |= {(key[0], victim): at for victim, at in episode.exhausted.items()}
            if not answer and not episode.active:
                self._end(key, observation.now_seconds)
        return self._intents()

    def trip(self, observation: Observation, culprit: str, victim: str, *, resource: str, lost: float) -> list[Intent]:
        """Apply the first rung before any verdict; the following ticks keep or revert it.

        `lost` is in seconds per second at the time of the trip; a victim that uses its share has no claim.
        """
        culprit = observation.boundary_of(culprit)
        key = (culprit, resource)
        if resource not in self.settings.resources or self._pair_skip_reason(observation, victim, culprit):
            return []
        # what its threads wanted in the tick before says nothing of now
        spare = observation.share(victim) - observation.held_by(victim) if resource == "cpu" else lost
        within_share = min(lost, spare) > loss_budget(observation, victim, resource, self.settings)
        if not within_share or self._is_known_unfelt(observation, victim, culprit, resource):
            self.skipped["not_felt"] += 1
            return []
        if self._is_limited_above(culprit, resource):
            return []
        named, to = observation.name_of(victim), observation.name_of(culprit)
        reason = f"{named} loses {lost:.2f} s/s of {resource} to {to} now"
        interference = self._with_allowance(observation, Interference(culprit, victim, resource, reason, "", lost))
        episode = self._episodes.get(key) or self._begin(key, observation.now_seconds)
        self.steps = episode.trip(observation, interference, self._history)
        return list(episode.intents()) if self.steps else []

    def is_lifted(self, culprit: str) -> bool:
        """Return whether a rung of a culprit is lifted for now."""
        return any(
            applied.lifted
            for (path, _resource), episode in self._episodes.items()
            if path == culprit
            for applied in episode.applied_rungs
        )

    def note_refusals(self, refusals: Iterable[Refusal], now_seconds: float) -> None:
        """Take note of the intents of the last step that the enforcer did not carry out."""
        for refusal in refusals:
            for episode in self._episodes.values():
                self._refusals += episode.note_refusal(
                    refusal.target, refusal.knob, refusal.reach, now_seconds, self._history
                )

    def _intents(self) -> list[Intent]:
        return [intent for key in sorted(self._episodes) for intent in self._episodes[key].intents()]

    def _answers(
        self, observation: Observation, interferences: Mapping[tuple[str, str], list[Answer]]
    ) -> dict[tuple[str, str], list[Answer]]:
        """Return the interferences of each culprit and resource, those felt first, then the worst; drastic rungs only
        where two victims feel it."""
        answers = {}
        for key, found in interferences.items():
            felt = [(self._felt(observation, each), most) for each, most in found]
            felt.sort(key=lambda answer: (not answer[0].felt, -answer[0].lost))
            if self._victims_of(observation, [each for each, _most in felt if each.felt]) < 2:
                felt = [(each, min(most, Strength.HARD)) for each, most in felt]
            answers[key] = felt
        return answers

    @staticmethod
    def _victims_of(observation: Observation, interferences: Iterable[Interference]) -> int:
        """Return how many pods, or cgroups outside pods, are victims."""
        rows = [observation.rows.get(each.victim) for each in interferences]
        infos = [observation.cgroups[row] for row in rows if row is not None]
        return len({info.pod_uid or info.path for info in infos})

    def _interferences(self, observation: Observation) -> dict[tuple[str, str], list[Answer]]:
        """Return the interferences that may be answered by culprit and resource, one for each victim, with the
        strongest rung allowed."""
        found: dict[tuple[str, str], dict[str, Answer]] = {}
        for verdict in observation.verdicts:
            for culprit in self._eligible(observation, verdict):
                lost = culprit.share * verdict.lost_seconds_per_second
                interference = Interference(
                    culprit.path,
                    verdict.victim,
                    verdict.resource,
                    f"{observation.name_of(verdict.victim)} loses {lost:.2f} s/s of {verdict.resource} "
                    f"to {observation.name_of(culprit.path)}",
                    f"{verdict.victim}|{verdict.rule}",
                    lost,
                    claim=observation.claim_on(verdict.victim, culprit.path, verdict.resource),
                )
                max_strength = self.settings.max_strength
                if culprit.how is How.CORRELATED:
                    max_strength = min(max_strength, Strength.MILD)
                if len(observation.subtrees.rows(culprit.path)) > 1:
                    max_strength = min(max_strength, Strength.HARD)
                if observation.rank(verdict.victim) < SENSITIVE_RANK:
                    max_strength = Strength.INVISIBLE
                of_key = found.setdefault((culprit.path, verdict.resource), {})
                known = of_key.get(verdict.victim)
                if known is None or lost > known[0].lost:
                    of_key[verdict.victim] = (interference, max_strength)
        return {key: list(of_key.values()) for key, of_key in found.items()}

    def _eligible(self, observation: Observation, verdict: Verdict) -> list[Culprit]:
        """Return the culprits of a verdict that may be acted upon; several in one directory as that directory."""
        eligible, small = [], []
        for culprit in _named_culprits(observation, verdict):
            why = self._skip_reason(observation, verdict, culprit)
            if why == "small_share" and not self._pair_skip_reason(observation, verdict.victim, culprit.path):
                small.append(culprit)
            elif why:
                self.skipped[why] += 1
            else:
                eligible.append(culprit)
        if verdict.resource == "cpu" and len(eligible) + len(small) > 1:
            eligible, small = folded(
                observation,
                verdict.victim,
                eligible,
                small,
                least_share=self.settings.min_culprit_share,
                is_alone=lambda path: (path, "cpu") in self._episodes,
                may_be_folded=partial(self._may_be_folded, observation, verdict.victim),
            )
        self.skipped["small_share"] += len(small)
        if not self.skipped["small_share"]:
            del self.skipped["small_share"]
        return eligible

    def _may_be_folded(self, observation: Observation, victim: str, whole: str) -> bool:
        """Return whether a directory may be acted upon as one for a victim, and has a rung left for it."""
        at = self._exhausted.get((whole, victim))
        is_exhausted = at is not None and observation.now_seconds - at <= self.settings.remember_seconds
        return not is_exhausted and not self._pair_skip_reason(observation, victim, whole)

    def _is_limited_above(self, culprit: str, resource: str) -> bool:
        return any(
            episode.applied_rungs and above == resource and is_below(culprit, path)
            for (path, above), episode in self._episodes.items()
        )

    def _with_allowance(self, observation: Observation, interference: Interference) -> Interference:
        """Return the interference with what limits may take from its culprit for its victim."""
        taken = sum(
            episode.taken_cores(interference.victim)
            for (culprit, _resource), episode in self._episodes.items()
            if culprit != interference.culprit
        )
        allowance = max(observation.entitled(interference.victim, of_limits=True) - taken, 0.0)
        return replace(interference, allowance_cores=allowance)

    def _is_shown(self, victim: str, now: float) -> bool:
        """Return whether a rung is shown for a victim since an earlier tick: whether it needs another one depends on
        what was never tried."""
        return any(
            victim in applied.before and applied.at_seconds < now
            for episode in self._episodes.values()
            for applied in episode.applied_rungs
        )

    def _felt(self, observation: Observation, interference: Interference) -> Interference:
        """Return the interference, marked where its victim does not feel it."""
        budget = loss_budget(observation, interference.victim, interference.resource, self.settings)
        lately = self._history.lost(interference.pair, self.settings.verify_ticks)
        over = min(interference.lost, max(interference.claim, lately)) > budget
        if over and self._slows_down(interference.victim, interference.resource, unknown=True):
            return interference
        self.skipped["not_felt"] += 1
        return replace(interference, felt=False)

    def _slows_down(self, victim: str, resource: str, *, unknown: bool) -> bool:
        """Return whether the victim's requests take longer than usual; `unknown` where that is not measured."""
        slowdown = self._history.slowdown(victim, self.settings.verify_ticks)
        if slowdown != slowdown or resource not in _SEEN_BY_REQUESTS:
            return unknown
        return slowdown > self.settings.felt_slowdown_ratio

    def _is_known_unfelt(self, observation: Observation, victim: str, culprit: str, resource: str) -> bool:
        """Return whether the last ticks show that the victim does not feel the culprit: it cost the victim more than
        its budget in each of them, and requests took as long as usual. Of a culprit that begins now they say nothing.
        """
        budget = loss_budget(observation, victim, resource, self.settings)
        known = self._history.least_lost(Pair(culprit, victim, resource), self.settings.verify_ticks) > budget
        return known and not self._slows_down(victim, resource, unknown=True)

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

    def _record(self, observation: Observation, interferences: Mapping[tuple[str, str], list[Answer]]) -> None:
        pairs = [each.pair for answers in interferences.values() for each, _most in answers]
        bystanders = []
        for episode in self._episodes.values():
            pairs += episode.pairs
            bystanders += episode.bystanders
        victims = [verdict.victim for verdict in observation.verdicts]
        self._history.record(observation, pairs, victims, bystanders)

    def _begin(self, key: tuple[str, str], now: float) -> Episode:
        settings = self.settings
        past = self._past.get(key)
        episode = Episode(key[0], key[1], settings, settings.hold_seconds, self.is_dry_run)
        if past is not None and now - past.ended <= settings.remember_seconds:
            episode.hold_seconds = min(past.hold_seconds * settings.hold_factor, settings.max_hold_seconds)
            episode.ineffective = dict(past.ineffective)
            episode.barred_until = past.barred_until
        episode.harmful = self._harmful.get(key) or episode.harmful
        self._episodes[key] = episode
        return episode

    def _end(self, key: tuple[str, str], now: float) -> None:
        episode = self._episodes.pop(key)
        if episode.acted:
            self._past[key] = _PastEpisode(episode.hold_seconds, episode.ineffective, now, episode.barred_until)
        if episode.harmful:
            self._harmful.pop(key, None)
            self._harmful[key] = episode.harmful
            if len(self._harmful) > _MAX_HARMFUL:
                self._harmful.pop(next(iter(self._harmful)))
        limit = now - self.settings.remember_seconds
        self._past = {each: past for each, past in self._past.items() if past.ended > limit}
        self._exhausted = {each: at for each, at in self._exhausted.items() if at > limit}


def _named_culprits(observation: Observation, verdict: Verdict) -> list[Culprit]:
    """Return each culprit of a verdict once; those below a directory of another user are that directory, together."""
    merged: dict[str, Culprit] = {}
    for culprit in verdict.culprits:
        path = observation.boundary_of(culprit.path)
        before = merged.get(path)
        if before is not None:
            merged[path] = msgspec.structs.replace(before, share=min(before.share + culprit.share, 1.0))
        else:
            merged[path] = culprit if path == culprit.path else msgspec.structs.replace(culprit, path=path)
    return list(merged.values())
