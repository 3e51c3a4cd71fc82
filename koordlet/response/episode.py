"""One culprit on one resource: which rungs stand, which were proven, when they are let go. The clock is an argument.

A rung stands on trial first. It is kept if the victim's loss fell (and its turnaround did not grow), else taken back
and the next one tried. While kept ones stand and the victim still loses, the next is added. They are let go one by one
when no verdict has named the culprit for the hold, which grows each time the culprit comes back.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from api.intents import Intent, Setting, Strength
from koordlet.response.ladders import LADDERS, Interference, Rung, loss_over_budget
from koordlet.response.limit_control import LimitState, first_limit, loosen, next_limit
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings

_QUIET_MOST_SECONDS = 8.0
"""However often a culprit came back, its end is believed after this long."""


class StepKind(StrEnum):
    """What happened to a rung."""

    APPLIED = "applied"
    KEPT = "kept"
    REVERTED = "reverted"
    RELEASED = "released"


class ResponseStep(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the response's own story."""

    kind: StepKind
    rung: str
    culprit: str
    victim: str
    resource: str
    before: float
    """Seconds lost per second by the victim when the rung was pulled."""
    after: float
    """The same at this moment, averaged over the trial."""
    reason: str


@dataclass
class _AppliedRung:
    rung: Rung
    interference: Interference
    intents: tuple[Intent, ...]
    at_seconds: float
    before: float
    turnaround_before: float
    peak_use: float
    proven: bool = False
    sent: bool = False
    limit_state: LimitState | None = None
    """Of a steered rung."""
    disks: tuple[str, ...] = ()
    """Those that it limits."""

    def allowed_use(self) -> float:
        """What the culprit may use at most, of what it used."""
        return self.peak_use if self.limit_state is None else min(self.peak_use, self.limit_state.limit)


@dataclass
class Episode:
    """The ladder against one culprit."""

    culprit: str
    resource: str
    settings: ResponseSettings
    hold_seconds: float
    applied_rungs: list[_AppliedRung] = field(default_factory=list)
    ineffective: dict[str, float] = field(default_factory=dict)
    """Rungs that did not help, and when they were taken back."""
    named_at: float = 0.0
    """When a verdict last named the culprit."""
    quiet_since: float | None = None
    released_at: float = 0.0
    acted: bool = False
    """Whether anything ever stood."""
    _turnaround: Sequence[float] = ()
    _throttled: Sequence[float] = ()

    @property
    def active(self) -> bool:
        """Whether anything stands."""
        return bool(self.applied_rungs)

    def step(
        self,
        observation: Observation,
        interference: Interference | None,
        max_strength: Strength,
        lost: Sequence[float],
        turnaround: Sequence[float] = (),
        throttled: Sequence[float] = (),
    ) -> list[ResponseStep]:
        """One tick. `case` is today's accusation, None without one; `lost` is what the victim lost in recent ticks,
        `held` what its own quota cost it, `turnaround` the 99th percentile of the requests that it answered, in
        seconds, NaN without any; newest last, one number a tick."""
        now = observation.now_seconds
        self._turnaround, self._throttled = turnaround, throttled
        used = self._activity(observation, observation.rows.get(self.culprit))
        for applied in self.applied_rungs:
            applied.peak_use = max(applied.peak_use, used)  # the fast path acts before the first tick of a newcomer
        if interference is not None:
            self.named_at = now
        self._adjust_limits(observation, interference)
        steps = list(self._release_expired(now, lost))
        steps += self._verify(observation, lost)
        if self._is_quiet(observation):
            steps += [
                self._remove(applied, StepKind.RELEASED, lost, "the culprit went quiet")
                for applied in list(self.applied_rungs)
            ]
        elif interference is None:
            steps += self._release_due(now, lost)
        elif (
            self._still_loses(observation, interference, lost)
            and all(applied.proven for applied in self.applied_rungs)
            and not self._applied_lately(now)
        ):
            steps += self._apply_next(observation, interference, max_strength, lost)
        return steps

    def intents(self) -> Iterator[Intent]:
        """What is wanted this tick; of several values for one knob the latest."""
        settings: dict[tuple[str, str], Setting] = {}
        for applied in self.applied_rungs:
            for intent in applied.intents:
                if isinstance(intent, Setting):
                    settings[intent.target, intent.knob] = intent
                elif not applied.sent:
                    yield intent
            applied.sent = True
        yield from settings.values()

    def apply_first(self, observation: Observation, interference: Interference, before: float) -> list[ResponseStep]:
        """The first rung at once, on the fast path's word; nothing when something stands already."""
        if self.applied_rungs:
            return []
        self.named_at = observation.now_seconds
        self._turnaround = ()  # it was measured before the harm: no rung can be asked to better that
        return self._apply_next(observation, interference, Strength.INVISIBLE, [before])

    def _adjust_limits(self, observation: Observation, interference: Interference | None) -> None:
        """Move limits with what the victim lost; one that had to be lowered shows that the culprit still presses."""
        floor = self.settings.io_floor_bytes_per_second
        row = observation.rows.get(self.culprit)
        for applied in self.applied_rungs:
            if applied.limit_state is None or applied.rung.set_limit is None:
                continue
            victims = {applied.interference.victim} | ({interference.victim} if interference else set())
            worst, used = (
                loss_over_budget(observation, sorted(victims), self.settings),
                self._activity(observation, row),
            )
            before, applied.limit_state = (
                applied.limit_state,
                next_limit(applied.limit_state, loss_over_budget=worst, used=used, floor=floor),
            )
            if applied.limit_state.lowered:
                self.named_at = observation.now_seconds
                if before.releasing:
                    self.hold_seconds = min(
                        self.hold_seconds * self.settings.hold_factor, self.settings.max_hold_seconds
                    )
            if applied.limit_state.limit != before.limit:
                applied.intents = applied.rung.set_limit(
                    applied.interference, self.settings, applied.disks, applied.limit_state.limit
                )

    def _verify(self, observation: Observation, lost: Sequence[float]) -> list[ResponseStep]:
        steps = []
        now = observation.now_seconds
        for applied in [applied for applied in self.applied_rungs if not applied.proven]:
            if now - applied.at_seconds < self.settings.settle_seconds + self.settings.verify_seconds:
                continue
            if self._helped(observation, applied, lost):
                applied.proven = True
                self.named_at = now  # as good as a verdict: without it the victim would lose again
                steps.append(self._step_of(applied, StepKind.KEPT, lost, "the victim's loss fell"))
                if applied.rung.one_shot:
                    self.applied_rungs.remove(applied)
            else:
                self.ineffective[applied.rung.name] = now
                steps.append(self._remove(applied, StepKind.REVERTED, lost, "the victim's loss did not fall"))
        return steps

    def _helped(self, observation: Observation, applied: _AppliedRung, lost: Sequence[float]) -> bool:
        settings = self.settings
        after = self._trial_mean(self._loss_to_lower(applied.rung, lost))
        fell = after <= max(
            applied.before * (1 - settings.min_improvement_ratio), self._loss_budget(observation, applied.interference)
        )
        # False while either is NaN
        grew = self._typical_turnaround() > applied.turnaround_before * (1 + settings.turnaround_slack)
        return fell and not grew

    def _loss_to_lower(self, rung: Rung, lost: Sequence[float]) -> Sequence[float]:
        """What a rung is to lower."""
        return self._throttled if rung.relieves_victim else lost

    def _typical_turnaround(self) -> float:
        """Median over the ticks of a trial: the 99th percentile of one second's requests is little more than chance."""
        newest = [each for each in self._turnaround[-max(int(self.settings.verify_seconds), 1) :] if each == each]
        return statistics.median(newest) if newest else math.nan

    def _trial_mean(self, lost: Sequence[float]) -> float:
        """Mean loss of the ticks on trial; a tick is taken for a second, which is the agent's default."""
        newest = list(lost)[-max(int(self.settings.verify_seconds), 1) :]
        return sum(newest) / len(newest) if newest else 0.0

    def _apply_next(
        self, observation: Observation, interference: Interference, max_strength: Strength, lost: Sequence[float]
    ) -> list[ResponseStep]:
        active = {applied.rung.name for applied in self.applied_rungs}
        forgotten = observation.now_seconds - self.settings.remember_seconds
        self.ineffective = {name: at for name, at in self.ineffective.items() if at > forgotten}
        for rung in LADDERS[self.resource]:
            blocked = rung.name in active or rung.name in self.ineffective or rung.strength > max_strength
            if blocked or (rung.knob is not None and rung.knob not in observation.capabilities.knobs):
                continue
            intents = rung.build(observation, interference, self.settings)
            if not intents:
                continue
            culprit = observation.rows.get(self.culprit)
            applied = _AppliedRung(
                rung,
                interference,
                intents,
                observation.now_seconds,
                self._trial_mean(self._loss_to_lower(rung, lost)),
                self._typical_turnaround(),
                self._activity(observation, culprit),
            )
            if rung.set_limit is not None:
                applied.disks = observation.disks_between(self.culprit, interference.victim)
                worst = loss_over_budget(observation, [interference.victim], self.settings)
                applied.limit_state = first_limit(applied.peak_use, worst, self.settings.io_floor_bytes_per_second)
            self.applied_rungs.append(applied)
            self.acted = True
            return [self._step_of(applied, StepKind.APPLIED, lost, interference.reason)]
        return []

    def _still_loses(self, observation: Observation, interference: Interference, lost: Sequence[float]) -> bool:
        """A verdict outlives the loss by a few ticks, and others cost the victim time too; no reason to climb on."""
        floor = self.settings.io_floor_bytes_per_second
        if any(applied.limit_state is not None and applied.limit_state.limit > floor for applied in self.applied_rungs):
            return False  # a limit that can still be lowered will be
        return not self.applied_rungs or min(self._trial_mean(lost), interference.lost) > self._loss_budget(
            observation, interference
        )

    def _loss_budget(self, observation: Observation, interference: Interference) -> float:
        settings, row = self.settings, observation.rows.get(interference.victim)
        progress = float(observation.cpu_cores[row]) if row is not None and self.resource == "cpu" else 0.0
        return max(settings.loss_budget_seconds_per_second, settings.loss_budget_ratio * progress)

    def _applied_lately(self, now: float) -> bool:
        return bool(self.applied_rungs) and now - self.applied_rungs[-1].at_seconds < self.settings.verify_seconds

    def _release_expired(self, now: float, lost: Sequence[float]) -> Iterator[ResponseStep]:
        for applied in [applied for applied in self.applied_rungs if applied.rung.temporary]:
            if now - applied.at_seconds >= self.settings.freeze_seconds:
                self.ineffective[applied.rung.name] = now
                yield self._remove(applied, StepKind.RELEASED, lost, "its time is over")

    def _release_due(self, now: float, lost: Sequence[float]) -> list[ResponseStep]:
        if not self.applied_rungs or now - self.named_at < self.hold_seconds:
            return []
        if now - self.released_at < self.settings.release_seconds:
            return []
        last = self.applied_rungs[-1]
        if last.limit_state is not None and last.limit_state.limit < last.limit_state.ceiling:
            last.limit_state = loosen(last.limit_state)
            return []
        self.released_at = now
        return [self._remove(last, StepKind.RELEASED, lost, "no verdict names the culprit any more")]

    def _is_quiet(self, observation: Observation) -> bool:
        """Nothing to hold back: gone, or using almost nothing although the rung would let it."""
        row = observation.rows.get(self.culprit)
        if not self.applied_rungs:
            return False
        if row is None:
            return True
        used = max(applied.peak_use for applied in self.applied_rungs)
        if any(applied.limit_state is not None for applied in self.applied_rungs):
            used = min(applied.allowed_use() for applied in self.applied_rungs)
        if used <= 0 or self._activity(observation, row) > used * self.settings.quiet_ratio:
            self.quiet_since = None
            return False
        if self.quiet_since is None:
            self.quiet_since = observation.now_seconds
        growth = self.hold_seconds / self.settings.hold_seconds
        patience = min(self.settings.quiet_seconds * growth, max(_QUIET_MOST_SECONDS, self.settings.quiet_seconds))
        return observation.now_seconds - self.quiet_since >= patience

    def _activity(self, observation: Observation, row: int | None) -> float:
        """What the culprit uses of the resource: bytes/s of block IO, else cores; nothing tells for memory."""
        if row is None or self.resource == "memory":
            return 0.0
        return float((observation.io_bytes_per_second if self.resource == "blockio" else observation.cpu_cores)[row])

    def _remove(self, applied: _AppliedRung, kind: StepKind, lost: Sequence[float], reason: str) -> ResponseStep:
        self.applied_rungs.remove(applied)
        return self._step_of(applied, kind, lost, reason)

    def _step_of(self, applied: _AppliedRung, kind: StepKind, lost: Sequence[float], reason: str) -> ResponseStep:
        return ResponseStep(
            kind=kind,
            rung=applied.rung.name,
            culprit=self.culprit,
            victim=applied.interference.victim,
            resource=self.resource,
            before=applied.before,
            after=self._trial_mean(self._loss_to_lower(applied.rung, lost)),
            reason=reason,
        )
