"""Episode of one culprit on one resource: rungs on trial, rungs kept, and their release. The clock is an argument.

A rung is applied on trial. With the loss below its budget it is held; else it is kept only if the loss is clearly
lower than before, or clearly higher in two ticks without it. A rung by which the culprit yields stands for as long as
the culprit waits for a victim: it takes only what other work wants, and a lift would cost the victim its tail.
Another is lifted for one tick each time that its hold has passed: where the loss comes back the rung is put back and
the hold grows, else it stays released; and it is released at once when its victims have nothing to do.

While all applied rungs stand and a victim still loses, the next is added: one that takes CPU time from the culprit
although CPUs are free only for a loss of more than twice the budget, and a limit on a disk beside a weight only where
IO still loses more than twice the time that it takes. A rung that makes a victim or a bystander worse off is taken back
at once.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from api.intents import Intent, Setting, Strength
from koordlet.response import rung_judgement as judgement
from koordlet.response import steering
from koordlet.response.applied_rung import AppliedRung, Phase
from koordlet.response.bystanders import is_bystander_hurt, is_woken_member_hurt
from koordlet.response.climbing import begin, next_rung
from koordlet.response.harm_memory import HarmMemory, Suspicions
from koordlet.response.history import History, Pair
from koordlet.response.observation import Observation
from koordlet.response.quiet import QuietWatch
from koordlet.response.rungs.limits import loss_budget
from koordlet.response.rungs.rung import Interference
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import Refused, ResponseStep, StepKind
from koordlet.response.trial import (
    Judgement,
    jittered,
    worsened,
)

_TRIAL_LIFT_TICKS, _PROOF_LIFT_TICKS = 2, 1
_LIMIT_TICKS = 10
"""Ticks in which a victim must lose much on the average, although the culprit yields, before a limit follows; of a rung
that is newer all since it was applied."""
_SUSPICION_TICKS = 3
"""Ticks in which a victim must recover for a rung that was taken back to have been at fault."""
_RECENT_TICKS, _MOST_TICKS = 6, 60
"""Ticks with a rung that a lift is compared with: the newest where it was lifted because of them, else all."""
_FEWEST_BEFORE_TRIP = 15
"""Ticks without a trip after which a trip in a lift is evidence."""
_SEARCH_TRIALS = 3
"""Trials that a limit may take that can still be lowered."""
ANY_VICTIM = "*"


@dataclass
class Episode:
    """Rungs applied to one culprit for one resource."""

    culprit: str
    resource: str
    settings: ResponseSettings
    hold_seconds: float
    is_dry_run: bool = False
    """Nothing that is decided happens: the first rung is shown, and none that would depend on its effect."""
    applied_rungs: list[AppliedRung] = field(default_factory=list)
    ineffective: dict[tuple[str, str], float] = field(default_factory=dict)
    """Rungs that did not help a victim, or any (`ANY_VICTIM`), with the time of their revert."""
    harmful: HarmMemory = field(init=False)
    """Rungs that made a victim worse off."""
    named_at: float = 0.0
    """Time at which a verdict last named the culprit."""
    released_at: float = 0.0
    acted: bool = False
    """Whether any rung was ever applied."""
    barred_until: float = 0.0
    _suspicions: Suspicions = field(default_factory=Suspicions)
    _quiet: QuietWatch = field(init=False)
    exhausted: dict[str, float] = field(default_factory=dict)
    """Victims that still lose although no rung is left, with the time at which that was found."""
    _felt: list[Interference] = field(default_factory=list)
    """What victims feel of the culprit in this tick, the worst first."""

    def __post_init__(self) -> None:
        self.harmful = HarmMemory(self.settings)
        self._quiet = QuietWatch(self.culprit, self.resource)

    @property
    def active(self) -> bool:
        """Return whether any rung is applied, lifted for now, or just taken back because it was suspected of harm."""
        return bool(self.applied_rungs or self._suspicions)

    @property
    def pairs(self) -> list[Pair]:
        """Return the pairs whose series are needed."""
        applied = [Pair(self.culprit, victim, self.resource) for one in self.applied_rungs for victim in one.before]
        return applied + self._suspicions.pairs

    @property
    def bystanders(self) -> list[str]:
        """Return the cgroups that a rung reaches besides the culprit."""
        return [path for applied in self.applied_rungs for path in applied.bystanders]

    def taken_cores(self, victim: str) -> float:
        """Return the CPU time that limits take from the culprit for a victim."""
        if self.resource != "cpu":
            return 0.0
        limits = [applied for applied in self.applied_rungs if applied.interference.victim == victim]
        return max(map(steering.taken_cores, limits), default=0.0)

    def step(
        self,
        observation: Observation,
        interferences: Sequence[tuple[Interference, Strength]],
        history: History,
    ) -> list[ResponseStep]:
        """Advance by one tick.

        `interferences` are what today's verdicts say of the culprit, the worst first, with the strongest rung allowed
        for each. A rung is judged by the series of the pairs that it was applied for, whatever today's verdicts name.
        """
        now = observation.now_seconds
        wanted = self._quiet.wanted(observation)
        for applied in self.applied_rungs:
            applied.peak_wanted = max(applied.peak_wanted, wanted)  # a trip may precede the cgroup's first tick
            if applied.is_refused:
                applied.is_refused, applied.at_seconds = False, now
            applied.note_use(self.culprit, observation, self.settings)
            applied.note_victims(observation, self.settings)
        self._felt = [interference for interference, _most in interferences if interference.felt]
        if interferences:
            self.named_at = now
        if self.is_dry_run:
            return self._step_dry(observation, interferences, history)
        self._adjust_limits(observation, interferences)
        steps: list[ResponseStep] = []
        for rung in self._suspicions.proved(observation, history, self.settings):
            self.harmful.add(rung, now)
        steps += self._release_expired(now, history)
        steps += self._take_back_harmful(observation, history)
        for applied in self.applied_rungs:
            applied.record(self.culprit, now, history, self.settings)
        steps += self._end_lifts(observation, history)
        steps += self._end_trials(observation, history)
        if self._is_quiet(observation):
            steps += [
                self._remove(applied, StepKind.RELEASED, history, "the culprit went quiet")
                for applied in list(self.applied_rungs)
            ]
            return steps
        steps += self._release_for_nobody(now, history)
        climbed = self._climb(observation, interferences, history)
        return steps + (climbed or self._release_due(observation, interferences, history))

    def intents(self) -> Iterator[Intent]:
        """Yield the intents of this tick; of several values for one knob the latest."""
        settings: dict[tuple[str, str], Setting] = {}
        for applied in self.applied_rungs:
            if applied.lifted:
                continue
            for intent in applied.intents:
                if isinstance(intent, Setting):
                    settings[intent.target, intent.knob] = intent
                elif not applied.sent:
                    yield intent
            applied.sent = True
        yield from settings.values()

    def trip(self, observation: Observation, interference: Interference, history: History) -> list[ResponseStep]:
        """Answer a trip: apply the first rung at once, or end its lift; nothing where a rung is in effect already.

        What the culprit costs the victim without the rung is not known: the trip saw a peak of a few milliseconds. The
        rung is held, and the next lift shows whether it is of use. A trip in a lift shows the same at once, unless the
        pair tripped with the rung in effect, too.
        """
        now = observation.now_seconds
        if not self.applied_rungs:
            if now < self.barred_until:
                return []
            self.named_at = now
            return self._apply_next(observation, interference, Strength.INVISIBLE, history, is_trip=True)
        last = self.applied_rungs[-1]
        seen = last.on_ticks.get(interference.victim, ())
        if last.lifted and not last.trips and last.phase is not Phase.TRIAL and len(seen) >= _FEWEST_BEFORE_TRIP:
            last.helped = interference.victim
            self._extend_hold()
            return [self._keep(last, now, history, "the victim tripped without it")]
        if now > last.at_seconds + self.settings.settle_seconds and not last.lifted:
            last.trips += 1
        return []

    def note_refusal(self, target: str, knob: str, reach: Refused, now: float, history: History) -> list[ResponseStep]:
        """Take note that the enforcer did not carry out an intent (`knob` is empty for one that is no setting)."""
        steps = []
        for applied in list(self.applied_rungs):
            asked = {
                (intent.target, intent.knob.value if isinstance(intent, Setting) else "") for intent in applied.intents
            }
            if (target, knob) not in asked or applied.lifted:
                continue
            if reach is Refused.FOR_NOW and not applied.rung.one_shot:
                applied.is_refused = True
                continue
            if reach is Refused.CULPRIT:
                self.barred_until = now + self.settings.remember_seconds
            self.ineffective[applied.rung.name, ANY_VICTIM] = now
            steps.append(self._remove(applied, StepKind.REFUSED, history, f"the enforcer refused it ({reach.value})"))
        return steps

    def _step_dry(
        self, observation: Observation, interferences: Sequence[tuple[Interference, Strength]], history: History
    ) -> list[ResponseStep]:
        """Show the first rung while a verdict names the culprit; nothing is on trial that was never in effect."""
        now = observation.now_seconds
        if self._is_quiet(observation) or (not interferences and now - self.named_at >= self.hold_seconds):
            return [
                self._remove(applied, StepKind.RELEASED, history, "no verdict names the culprit any more")
                for applied in list(self.applied_rungs)
            ]
        if self.applied_rungs or now < self.barred_until:
            return []
        for interference, max_strength in interferences:
            if not interference.felt:
                continue
            is_grave = judgement.is_grave(observation, interference, history, self.settings)
            steps = self._apply_next(observation, interference, max_strength, history, may_limit=is_grave)
            if steps:
                return steps
        return []

    def _adjust_limits(self, observation: Observation, interferences: Sequence[tuple[Interference, Strength]]) -> None:
        """Move the limits; one that had to be lowered shows that the culprit still presses."""
        for applied in self.applied_rungs:
            was_releasing = applied.limit_state is not None and applied.limit_state.releasing
            if steering.adjust(applied, observation, interferences, self.settings):
                self.named_at = observation.now_seconds
                if was_releasing:
                    self._extend_hold()

    def _take_back_harmful(self, observation: Observation, history: History) -> list[ResponseStep]:
        """Take back rungs on trial for which a victim or a bystander fares worse."""
        steps = []
        now = observation.now_seconds
        on_trial = [one for one in self.applied_rungs if one.phase is Phase.TRIAL and not one.lifted]
        for applied in [one for one in on_trial if now > one.at_seconds]:
            for victim, before in applied.worst_before.items():
                pair = Pair(self.culprit, victim, self.resource)
                budget = loss_budget(observation, victim, self.resource, self.settings)
                worse = worsened(before, history.state(pair), budget=budget)
                if worse:
                    until = now + _SUSPICION_TICKS
                    self._suspicions.add(applied.rung.name, pair, before, until)
                    steps.append(self._remove(applied, StepKind.REVERTED, history, worse))
                    break
            else:
                if is_bystander_hurt(observation, applied, history, self.settings):
                    self.ineffective[applied.rung.name, ANY_VICTIM] = now
                    steps.append(self._remove(applied, StepKind.REVERTED, history, "a bystander lost for it"))
        for applied in [one for one in self.applied_rungs if is_woken_member_hurt(observation, one, self.settings)]:
            self.ineffective[applied.rung.name, ANY_VICTIM] = now
            self.exhausted |= dict.fromkeys(applied.before, now)  # from now on its members are taken one by one
            steps.append(self._remove(applied, StepKind.REVERTED, history, "a bystander in it woke and lost for it"))
        return steps

    def _end_trials(self, observation: Observation, history: History) -> list[ResponseStep]:
        steps = []
        now = observation.now_seconds
        trial_seconds = self.settings.settle_seconds + self.settings.verify_seconds
        for applied in [one for one in self.applied_rungs if one.phase is Phase.TRIAL and not one.lifted]:
            if now - applied.at_seconds < trial_seconds * (_SEARCH_TRIALS if steering.searches(applied) else 1):
                continue
            turnaround = history.turnaround_seconds(applied.interference.victim, self.settings.verify_ticks)
            if turnaround > applied.turnaround_before * (1 + self.settings.turnaround_slack):  # False for NaN
                steps.append(self._give_up(applied, now, history, "the victim's turnaround grew"))
            elif not applied.rung.liftable:
                steps.append(self._judge_by_before(observation, applied, history))
            elif judgement.is_calm(observation, applied, history, self.settings):
                self._hold(applied, now)
            elif applied.rung.yields:
                steps += self._judge_yielding(observation, applied, history)
            else:
                steps.append(self._lift(applied, _TRIAL_LIFT_TICKS, history, "the loss goes on: to see it without"))
        return steps

    def _hold(self, applied: AppliedRung, now: float) -> None:
        applied.phase, applied.proof_seconds = Phase.HELD, now
        self.named_at = now  # counts as a verdict: without the rung the victim might lose again

    def _judge_by_before(self, observation: Observation, applied: AppliedRung, history: History) -> ResponseStep:
        """Judge a rung that no lift can judge by what the victim lost before."""
        now = observation.now_seconds
        if judgement.judge_by_before(observation, applied, history, self.settings) is Judgement.HELPS:
            step = self._keep(applied, now, history, "the victim's loss fell")
            if applied.rung.one_shot:
                self.applied_rungs.remove(applied)
            return step
        return self._give_up(applied, now, history, "the victim's loss did not fall")

    def _judge_yielding(
        self, observation: Observation, applied: AppliedRung, history: History
    ) -> Iterator[ResponseStep]:
        """Judge a rung that costs no work anything by the ticks before it, while its victim still loses.

        A lift would take from the victim what it has by the rung, so it comes only where those ticks say nothing and
        the victim loses so much that a limit would be next.
        """
        now = observation.now_seconds
        found = judgement.compare_with_before(observation, applied, self.settings)
        applied.helped = next((victim for victim, each in found.items() if each is Judgement.HELPS), "")
        if applied.helped:
            yield self._keep(applied, now, history, "the victim's loss fell")
        elif found and all(each is Judgement.USELESS for each in found.values()):
            yield self._give_up(applied, now, history, "the victim's loss did not fall")
        elif any(
            judgement.is_grave(observation, each, history, self.settings, yields=True)
            for each in (applied.interference, *self._felt)
        ):
            yield self._lift(applied, _TRIAL_LIFT_TICKS, history, "the loss goes on: to see it without")
        else:
            self._hold(applied, now)

    def _end_lifts(self, observation: Observation, history: History) -> list[ResponseStep]:
        steps = []
        now = observation.now_seconds
        for applied in [one for one in self.applied_rungs if one.lifted]:
            applied.lift_ticks -= 1
            if applied.lifted:
                continue
            judgements = judgement.judge_lift(observation, applied, history, self.settings)
            applied.helped = next((v for v, found in judgements.items() if found is Judgement.HELPS), "")
            if applied.helped:
                if applied.phase is not Phase.TRIAL:
                    self._extend_hold()
                steps.append(self._keep(applied, now, history, "the victim lost more without it"))
            elif Judgement.USELESS in judgements.values():
                steps.append(self._give_up(applied, now, history, "the victim lost no more without it"))
            else:
                self.released_at = now
                steps.append(self._remove(applied, StepKind.RELEASED, history, "nothing was lost without it"))
        return steps

    def _budget(self, observation: Observation, victim: str) -> float:
        return loss_budget(observation, victim, self.resource, self.settings)

    def _claim(self, applied: AppliedRung, victim: str, history: History) -> float:
        return judgement.claim(applied, victim, history, self.settings)

    def _keep(self, applied: AppliedRung, now: float, history: History, reason: str) -> ResponseStep:
        """Put a rung back into effect that was shown to help."""
        step = self._step_of(applied, StepKind.KEPT, history, reason)
        applied.phase, applied.lift_ticks, applied.trips = Phase.KEPT, 0, 0
        applied.proof_seconds = self.named_at = now
        return step

    def _give_up(self, applied: AppliedRung, now: float, history: History, reason: str) -> ResponseStep:
        """Take back a rung that did not help; it is not tried again for its victims for a while."""
        applied.helped = ""
        for victim in applied.before:
            self.ineffective[applied.rung.name, victim] = now
        return self._remove(applied, StepKind.REVERTED, history, reason)

    def _lift(self, applied: AppliedRung, ticks: int, history: History, reason: str) -> ResponseStep:
        applied.lift_ticks = applied.lifted_for = ticks
        applied.compared = _RECENT_TICKS if ticks == _TRIAL_LIFT_TICKS else _MOST_TICKS
        applied.lifts += 1
        return self._step_of(applied, StepKind.LIFTED, history, reason)

    def _extend_hold(self) -> None:
        self.hold_seconds = min(self.hold_seconds * self.settings.hold_factor, self.settings.max_hold_seconds)

    def _climb(
        self, observation: Observation, interferences: Sequence[tuple[Interference, Strength]], history: History
    ) -> list[ResponseStep]:
        """Add a rung where all stand and a victim still loses; one that is only held must be shown to help first."""
        now = observation.now_seconds
        busy = any(one.phase is Phase.TRIAL or one.lifted for one in self.applied_rungs)
        if busy or self._suspicions or now < self.barred_until or self._applied_lately(now):
            return []
        for interference, max_strength in interferences:
            if not self._still_loses(observation, interference, history):
                continue
            last = self.applied_rungs[-1] if self.applied_rungs else None
            stands = last is not None and last.rung.yields
            ticks = self._ticks_of(last, now) if last is not None and stands else None
            is_grave = judgement.is_grave(observation, interference, history, self.settings, ticks=ticks, yields=stands)
            if last is not None and last.phase is Phase.HELD and last.rung.liftable and not stands:
                return [self._lift(last, _TRIAL_LIFT_TICKS, history, "the victim loses again: to see it without")]
            steps = self._apply_next(observation, interference, max_strength, history, may_limit=is_grave)
            if steps:
                return steps
            if is_grave:
                self.exhausted[interference.victim] = now
        return []

    def _apply_next(
        self,
        observation: Observation,
        interference: Interference,
        max_strength: Strength,
        history: History,
        *,
        is_trip: bool = False,
        may_limit: bool = True,
    ) -> list[ResponseStep]:
        now, victim = observation.now_seconds, interference.victim
        active = {applied.rung.name for applied in self.applied_rungs}
        self.ineffective = {
            key: at for key, at in self.ineffective.items() if at > now - self.settings.remember_seconds
        }
        barred = active | {name for name, whose in self.ineffective if whose in (victim, ANY_VICTIM)}
        found = next_rung(
            observation,
            interference,
            self.settings,
            max_strength=max_strength,
            is_barred=lambda name: name in barred or self.harmful.bars(name, now),
            may_limit=may_limit,
        )
        if found is None:
            return []
        applied = begin(
            *found,
            observation,
            interference,
            self.settings,
            history,
            felt=() if is_trip else self._felt,
            wanted=self._quiet.wanted(observation),
            is_trip=is_trip,
        )
        self.applied_rungs.append(applied)
        self.acted = True
        return [self._step_of(applied, StepKind.APPLIED, history, interference.reason)]

    def _still_loses(self, observation: Observation, interference: Interference, history: History) -> bool:
        """Return whether a victim still loses enough to this culprit to add a rung.

        A verdict stays open for a few ticks after the loss has ended, and other culprits cost the victim time too:
        neither is a reason.
        """
        if any(steering.can_fall(one, observation) for one in self.applied_rungs):
            return False  # the next tick will lower it
        if not interference.felt:
            return False
        budget = self._budget(observation, interference.victim)
        lost = history.lost(interference.pair, self.settings.verify_ticks)
        return not self.applied_rungs or min(lost, interference.lost) > budget

    def _applied_lately(self, now: float) -> bool:
        """Return whether the newest ticks are not all of the present rungs."""
        changes = [max(applied.at_seconds, applied.proof_seconds) for applied in self.applied_rungs]
        return now - max(changes, default=-math.inf) < self.settings.verify_seconds + 1

    def _ticks_of(self, applied: AppliedRung, now: float) -> int:
        """Return the newest ticks in which a rung was in effect, up to those that decide on a limit."""
        return max(min(int(now - applied.at_seconds - self.settings.settle_seconds), _LIMIT_TICKS), 1)

    def _release_expired(self, now: float, history: History) -> Iterator[ResponseStep]:
        for applied in [applied for applied in self.applied_rungs if applied.rung.temporary]:
            if now - applied.at_seconds >= self.settings.freeze_seconds:
                self.ineffective[applied.rung.name, ANY_VICTIM] = now
                yield self._remove(applied, StepKind.RELEASED, history, "its time is up")

    def _release_for_nobody(self, now: float, history: History) -> Iterator[ResponseStep]:
        """Release what takes CPU time from the culprit while its victims have nothing to do."""
        for applied in [one for one in self.applied_rungs if one.rung.costs_idle_time and not one.rung.temporary]:
            if now - applied.victims_wanted_seconds >= self.settings.quiet_seconds:
                yield self._remove(applied, StepKind.RELEASED, history, "its victims have nothing to do")

    def _release_due(
        self, observation: Observation, interferences: Collection[object], history: History
    ) -> list[ResponseStep]:
        """Lift the last rung when its hold has passed; a limit on a disk is loosened instead, which shows the same, and
        one that the culprit yields by is released when it did nothing for so long."""
        now = observation.now_seconds
        if not self.applied_rungs or now - self.released_at < self.settings.release_seconds:
            return []
        last = self.applied_rungs[-1]
        if last.phase is Phase.TRIAL or last.lifted or last.is_refused:
            return []
        unused = last.is_unused(now, self.hold_seconds)
        if unused is not None:
            if not unused:
                return []
            self.released_at = now
            return [self._remove(last, StepKind.RELEASED, history, "the culprit waits for no victim any more")]
        if steering.loosens(last) or not last.rung.liftable:
            if interferences or now - self.named_at < self.hold_seconds or steering.loosened(last):
                return []
            self.released_at = now
            return [self._remove(last, StepKind.RELEASED, history, "no verdict names the culprit any more")]
        if now - last.proof_seconds < jittered(self.hold_seconds, self.culprit, self.resource, last.lifts):
            return []
        return [self._lift(last, _PROOF_LIFT_TICKS, history, "its hold has passed: to see whether it is needed")]

    def _is_quiet(self, observation: Observation) -> bool:
        return self._quiet.is_quiet(observation, self.applied_rungs, self.settings, hold_seconds=self.hold_seconds)

    def _remove(self, applied: AppliedRung, kind: StepKind, history: History, reason: str) -> ResponseStep:
        self.applied_rungs.remove(applied)
        return self._step_of(applied, kind, history, reason)

    def _step_of(self, applied: AppliedRung, kind: StepKind, history: History, reason: str) -> ResponseStep:
        victim = applied.helped or applied.interference.victim
        return ResponseStep(
            kind=kind,
            rung=applied.rung.name,
            culprit=self.culprit,
            victim=victim,
            resource=self.resource,
            before=applied.before[victim],
            after=self._claim(applied, victim, history),
            reason=reason,
        )
