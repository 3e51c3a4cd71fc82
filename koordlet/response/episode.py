"""Episode of one culprit on one resource: rungs on trial, rungs kept, and their release. The clock is an argument.

A rung is applied on trial. It is kept if the victim's loss fell and its turnaround did not grow, else it is reverted
and the next one is tried. While all applied rungs are kept and the victim still loses, the next is added. They are
released one by one when no verdict has named the culprit for the hold time, which grows each time the culprit comes
back.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from api.intents import Intent, Setting, Strength
from koordlet.response.history import History
from koordlet.response.ladders import LADDERS, Interference, Rung, loss_budget, loss_over_budget
from koordlet.response.limit_control import LimitState, first_limit, loosen, next_limit
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings

_QUIET_MOST_SECONDS = 8.0
"""Upper bound of the time that a culprit must be quiet, however often it came back."""


class StepKind(StrEnum):
    """Kind of a step on the ladder."""

    APPLIED = "applied"
    KEPT = "kept"
    REVERTED = "reverted"
    RELEASED = "released"


class ResponseStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step on the ladder, as it is logged and counted."""

    kind: StepKind
    rung: str
    culprit: str
    victim: str
    resource: str
    before: float
    """Seconds per second that the culprit cost the victim when the rung was applied."""
    after: float
    """The same now, averaged over the trial."""
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
    """State of the limit, for a rung that adjusts one."""
    disks: tuple[str, ...] = ()
    """Disks that the limit is set on."""

    def allowed_use(self) -> float:
        """Return the most that the culprit may use now, in the unit of `peak_use`."""
        return self.peak_use if self.limit_state is None else min(self.peak_use, self.limit_state.limit)


@dataclass
class Episode:
    """Rungs applied to one culprit for one resource."""

    culprit: str
    resource: str
    settings: ResponseSettings
    hold_seconds: float
    applied_rungs: list[_AppliedRung] = field(default_factory=list)
    ineffective: dict[str, float] = field(default_factory=dict)
    """Rungs that did not help, with the time of their revert."""
    named_at: float = 0.0
    """Time at which a verdict last named the culprit."""
    quiet_since: float | None = None
    released_at: float = 0.0
    acted: bool = False
    """Whether any rung was ever applied."""

    @property
    def active(self) -> bool:
        """Return whether any rung is applied."""
        return bool(self.applied_rungs)

    def step(
        self,
        observation: Observation,
        interference: Interference | None,
        max_strength: Strength,
        history: History,
    ) -> list[ResponseStep]:
        """Advance by one tick.

        `interference` is what today's verdicts say of the culprit, None if they do not name it. A rung is judged by the
        series of the pair that it was applied for, whatever today's verdicts name.
        """
        now = observation.now_seconds
        used = self._activity(observation, observation.rows.get(self.culprit))
        for applied in self.applied_rungs:
            applied.peak_use = max(applied.peak_use, used)  # the fast path acts before the first tick of a new cgroup
        if interference is not None:
            self.named_at = now
        self._adjust_limits(observation, interference)
        steps = list(self._release_expired(now, history))
        steps += self._verify(observation, history)
        if self._is_quiet(observation):
            steps += [
                self._remove(applied, StepKind.RELEASED, history, "the culprit went quiet")
                for applied in list(self.applied_rungs)
            ]
        elif interference is None:
            steps += self._release_due(now, history)
        elif (
            self._still_loses(observation, interference, history)
            and all(applied.proven for applied in self.applied_rungs)
            and not self._applied_lately(now)
        ):
            steps += self._apply_next(observation, interference, max_strength, history)
        return steps

    def intents(self) -> Iterator[Intent]:
        """Yield the intents of this tick; of several values for one knob the latest."""
        settings: dict[tuple[str, str], Setting] = {}
        for applied in self.applied_rungs:
            for intent in applied.intents:
                if isinstance(intent, Setting):
                    settings[intent.target, intent.knob] = intent
                elif not applied.sent:
                    yield intent
            applied.sent = True
        yield from settings.values()

    def apply_first(
        self, observation: Observation, interference: Interference, before: float, history: History
    ) -> list[ResponseStep]:
        """Apply the first rung at once, for the fast path; nothing if a rung is applied already.

        `before` is the loss at the time of the trip. The turnaround before is not known: it was measured before the
        interference began, and no rung could improve on that.
        """
        if self.applied_rungs:
            return []
        self.named_at = observation.now_seconds
        return self._apply_next(observation, interference, Strength.INVISIBLE, history, before=before)

    def _adjust_limits(self, observation: Observation, interference: Interference | None) -> None:
        """Move the limits with the victim's loss; a limit that had to be lowered shows that the culprit still
        presses."""
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

    def _verify(self, observation: Observation, history: History) -> list[ResponseStep]:
        steps = []
        now = observation.now_seconds
        for applied in [applied for applied in self.applied_rungs if not applied.proven]:
            if now - applied.at_seconds < self.settings.settle_seconds + self.settings.verify_seconds:
                continue
            if self._helped(observation, applied, history):
                applied.proven = True
                self.named_at = now  # counts as a verdict: without the rung the victim would lose again
                steps.append(self._step_of(applied, StepKind.KEPT, history, "the victim's loss fell"))
                if applied.rung.one_shot:
                    self.applied_rungs.remove(applied)
            else:
                self.ineffective[applied.rung.name] = now
                steps.append(self._remove(applied, StepKind.REVERTED, history, "the victim's loss did not fall"))
        return steps

    def _helped(self, observation: Observation, applied: _AppliedRung, history: History) -> bool:
        settings, victim = self.settings, applied.interference.victim
        budget = loss_budget(observation, victim, self.resource, settings)
        after = self._loss_now(applied.rung, applied.interference, history)
        fell = after <= max(applied.before * (1 - settings.min_improvement_ratio), budget)
        # False while either is NaN
        turnaround = history.turnaround_seconds(victim, settings.verify_ticks)
        grew = turnaround > applied.turnaround_before * (1 + settings.turnaround_slack)
        return fell and not grew

    def _loss_now(self, rung: Rung, interference: Interference, history: History) -> float:
        """Return the mean loss over a trial that a rung is judged by: to the victim's own quota, or to the culprit."""
        if rung.relieves_victim:
            return history.throttled(interference.victim, self.settings.verify_ticks)
        return history.lost(interference.pair, self.settings.verify_ticks)

    def _apply_next(
        self,
        observation: Observation,
        interference: Interference,
        max_strength: Strength,
        history: History,
        *,
        before: float | None = None,
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
                self._loss_now(rung, interference, history) if before is None else before,
                history.turnaround_seconds(interference.victim, self.settings.verify_ticks)
                if before is None
                else math.nan,
                self._activity(observation, culprit),
            )
            if rung.set_limit is not None:
                applied.disks = observation.disks_between(self.culprit, interference.victim)
                worst = loss_over_budget(observation, [interference.victim], self.settings)
                applied.limit_state = first_limit(applied.peak_use, worst, self.settings.io_floor_bytes_per_second)
            self.applied_rungs.append(applied)
            self.acted = True
            return [self._step_of(applied, StepKind.APPLIED, history, interference.reason)]
        return []

    def _still_loses(self, observation: Observation, interference: Interference, history: History) -> bool:
        """Return whether the victim still loses enough to this culprit to add a rung.

        A verdict stays open for a few ticks after the loss has ended, and other culprits cost the victim time too:
        neither is a reason.
        """
        floor = self.settings.io_floor_bytes_per_second
        if any(applied.limit_state is not None and applied.limit_state.limit > floor for applied in self.applied_rungs):
            return False  # the next tick will lower it
        if not interference.felt:
            return False
        budget = loss_budget(observation, interference.victim, self.resource, self.settings)
        lost = history.lost(interference.pair, self.settings.verify_ticks)
        return not self.applied_rungs or min(lost, interference.lost) > budget

    def _applied_lately(self, now: float) -> bool:
        return bool(self.applied_rungs) and now - self.applied_rungs[-1].at_seconds < self.settings.verify_seconds

    def _release_expired(self, now: float, history: History) -> Iterator[ResponseStep]:
        for applied in [applied for applied in self.applied_rungs if applied.rung.temporary]:
            if now - applied.at_seconds >= self.settings.freeze_seconds:
                self.ineffective[applied.rung.name] = now
                yield self._remove(applied, StepKind.RELEASED, history, "its time is up")

    def _release_due(self, now: float, history: History) -> list[ResponseStep]:
        if not self.applied_rungs or now - self.named_at < self.hold_seconds:
            return []
        if now - self.released_at < self.settings.release_seconds:
            return []
        last = self.applied_rungs[-1]
        if last.limit_state is not None and last.limit_state.limit < last.limit_state.ceiling:
            last.limit_state = loosen(last.limit_state)
            return []
        self.released_at = now
        return [self._remove(last, StepKind.RELEASED, history, "no verdict names the culprit any more")]

    def _is_quiet(self, observation: Observation) -> bool:
        """Return whether the culprit is gone, or uses almost nothing although its rungs would allow more."""
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
        """Return the culprit's use of the resource: bytes/s of block IO, else cores; 0 for memory, which has no such
        rate."""
        if row is None or self.resource == "memory":
            return 0.0
        return float((observation.io_bytes_per_second if self.resource == "blockio" else observation.cpu_cores)[row])

    def _remove(self, applied: _AppliedRung, kind: StepKind, history: History, reason: str) -> ResponseStep:
        self.applied_rungs.remove(applied)
        return self._step_of(applied, kind, history, reason)

    def _step_of(self, applied: _AppliedRung, kind: StepKind, history: History, reason: str) -> ResponseStep:
        return ResponseStep(
            kind=kind,
            rung=applied.rung.name,
            culprit=self.culprit,
            victim=applied.interference.victim,
            resource=self.resource,
            before=applied.before,
            after=self._loss_now(applied.rung, applied.interference, history),
            reason=reason,
        )
