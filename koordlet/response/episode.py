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
from koordlet.response.ladders import LADDERS, Case, Rung, load_ratio
from koordlet.response.limit_control import LimitState, begun, let_go, steered
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
class _Pull:
    rung: Rung
    case: Case
    intents: tuple[Intent, ...]
    at_seconds: float
    before: float
    turnaround_before: float
    used_most: float
    proven: bool = False
    told: bool = False
    course: LimitState | None = None
    """Of a steered rung."""
    disks: tuple[str, ...] = ()
    """Those that it limits."""

    def standing_use(self) -> float:
        """What the culprit may use at most, of what it used."""
        return self.used_most if self.course is None else min(self.used_most, self.course.limit)


@dataclass
class Episode:
    """The ladder against one culprit."""

    culprit: str
    resource: str
    settings: ResponseSettings
    hold_seconds: float
    pulls: list[_Pull] = field(default_factory=list)
    useless: dict[str, float] = field(default_factory=dict)
    """Rungs that did not help, and when they were taken back."""
    named_at: float = 0.0
    """When a verdict last named the culprit."""
    quiet_since: float | None = None
    released_at: float = 0.0
    acted: bool = False
    """Whether anything ever stood."""
    _turnaround: Sequence[float] = ()
    _held: Sequence[float] = ()

    @property
    def active(self) -> bool:
        """Whether anything stands."""
        return bool(self.pulls)

    def step(
        self,
        sight: Observation,
        case: Case | None,
        strongest: Strength,
        lost: Sequence[float],
        turnaround: Sequence[float] = (),
        held: Sequence[float] = (),
    ) -> list[ResponseStep]:
        """One tick. `case` is today's accusation, None without one; `lost` is what the victim lost in recent ticks,
        `held` what its own quota cost it, `turnaround` the 99th percentile of the requests that it answered, in
        seconds, NaN without any; newest last, one number a tick."""
        now = sight.now_seconds
        self._turnaround, self._held = turnaround, held
        used = self._activity(sight, sight.rows.get(self.culprit))
        for pull in self.pulls:
            pull.used_most = max(pull.used_most, used)  # the fast path acts before the first tick of a newcomer
        if case is not None:
            self.named_at = now
        self._steer(sight, case)
        steps = list(self._end_briefs(now, lost))
        steps += self._try(sight, lost)
        if self._has_gone_quiet(sight):
            steps += [self._drop(pull, StepKind.RELEASED, lost, "the culprit went quiet") for pull in list(self.pulls)]
        elif case is None:
            steps += self._let_go(now, lost)
        elif (
            self._still_hurts(sight, case, lost)
            and all(pull.proven for pull in self.pulls)
            and not self._just_pulled(now)
        ):
            steps += self._pull(sight, case, strongest, lost)
        return steps

    def intents(self) -> Iterator[Intent]:
        """What is wanted this tick; of several values for one knob the latest."""
        standing: dict[tuple[str, str], Setting] = {}
        for pull in self.pulls:
            for intent in pull.intents:
                if isinstance(intent, Setting):
                    standing[intent.target, intent.knob] = intent
                elif not pull.told:
                    yield intent
            pull.told = True
        yield from standing.values()

    def pull_first(self, sight: Observation, case: Case, before: float) -> list[ResponseStep]:
        """The first rung at once, on the fast path's word; nothing when something stands already."""
        if self.pulls:
            return []
        self.named_at = sight.now_seconds
        self._turnaround = ()  # it was measured before the harm: no rung can be asked to better that
        return self._pull(sight, case, Strength.INVISIBLE, [before])

    def _steer(self, sight: Observation, case: Case | None) -> None:
        """Move limits with what the victim lost; one that had to be lowered shows that the culprit still presses."""
        floor = self.settings.io_floor_bytes_per_second
        row = sight.rows.get(self.culprit)
        for pull in self.pulls:
            if pull.course is None or pull.rung.steers is None:
                continue
            victims = {pull.case.victim} | ({case.victim} if case else set())
            worst, used = load_ratio(sight, sorted(victims), self.settings), self._activity(sight, row)
            before, pull.course = pull.course, steered(pull.course, strain=worst, used=used, floor=floor)
            if pull.course.cut:
                self.named_at = sight.now_seconds
                if before.letting_go:
                    self.hold_seconds = min(
                        self.hold_seconds * self.settings.hold_factor, self.settings.max_hold_seconds
                    )
            if pull.course.limit != before.limit:
                pull.intents = pull.rung.steers(pull.case, self.settings, pull.disks, pull.course.limit)

    def _try(self, sight: Observation, lost: Sequence[float]) -> list[ResponseStep]:
        steps = []
        now = sight.now_seconds
        for pull in [pull for pull in self.pulls if not pull.proven]:
            if now - pull.at_seconds < self.settings.settle_seconds + self.settings.verify_seconds:
                continue
            if self._helped(sight, pull, lost):
                pull.proven = True
                self.named_at = now  # as good as a verdict: without it the victim would lose again
                steps.append(self._told(pull, StepKind.KEPT, lost, "the victim's loss fell"))
                if pull.rung.once:
                    self.pulls.remove(pull)
            else:
                self.useless[pull.rung.name] = now
                steps.append(self._drop(pull, StepKind.REVERTED, lost, "the victim's loss did not fall"))
        return steps

    def _helped(self, sight: Observation, pull: _Pull, lost: Sequence[float]) -> bool:
        settings = self.settings
        after = self._after(self._felt(pull.rung, lost))
        fell = after <= max(pull.before * (1 - settings.min_improvement_ratio), self._tolerated(sight, pull.case))
        # False while either is NaN
        grew = self._typical_turnaround() > pull.turnaround_before * (1 + settings.turnaround_slack)
        return fell and not grew

    def _felt(self, rung: Rung, lost: Sequence[float]) -> Sequence[float]:
        """What a rung is to lower."""
        return self._held if rung.frees_victim else lost

    def _typical_turnaround(self) -> float:
        """Median over the ticks of a trial: the 99th percentile of one second's requests is little more than chance."""
        newest = [each for each in self._turnaround[-max(int(self.settings.verify_seconds), 1) :] if each == each]
        return statistics.median(newest) if newest else math.nan

    def _after(self, lost: Sequence[float]) -> float:
        """Mean loss of the ticks on trial; a tick is taken for a second, which is the agent's default."""
        newest = list(lost)[-max(int(self.settings.verify_seconds), 1) :]
        return sum(newest) / len(newest) if newest else 0.0

    def _pull(self, sight: Observation, case: Case, strongest: Strength, lost: Sequence[float]) -> list[ResponseStep]:
        standing = {pull.rung.name for pull in self.pulls}
        forgotten = sight.now_seconds - self.settings.remember_seconds
        self.useless = {name: at for name, at in self.useless.items() if at > forgotten}
        for rung in LADDERS[self.resource]:
            blocked = rung.name in standing or rung.name in self.useless or rung.strength > strongest
            if blocked or (rung.knob is not None and rung.knob not in sight.reach.knobs):
                continue
            intents = rung.build(sight, case, self.settings)
            if not intents:
                continue
            culprit = sight.rows.get(self.culprit)
            pull = _Pull(
                rung,
                case,
                intents,
                sight.now_seconds,
                self._after(self._felt(rung, lost)),
                self._typical_turnaround(),
                self._activity(sight, culprit),
            )
            if rung.steers is not None:
                pull.disks = sight.disks_between(self.culprit, case.victim)
                worst = load_ratio(sight, [case.victim], self.settings)
                pull.course = begun(pull.used_most, worst, self.settings.io_floor_bytes_per_second)
            self.pulls.append(pull)
            self.acted = True
            return [self._told(pull, StepKind.APPLIED, lost, case.reason)]
        return []

    def _still_hurts(self, sight: Observation, case: Case, lost: Sequence[float]) -> bool:
        """A verdict outlives the loss by a few ticks, and others cost the victim time too; no reason to climb on."""
        floor = self.settings.io_floor_bytes_per_second
        if any(pull.course is not None and pull.course.limit > floor for pull in self.pulls):
            return False  # a limit that can still be lowered will be
        return not self.pulls or min(self._after(lost), case.lost) > self._tolerated(sight, case)

    def _tolerated(self, sight: Observation, case: Case) -> float:
        settings, row = self.settings, sight.rows.get(case.victim)
        progress = float(sight.cpu_cores[row]) if row is not None and self.resource == "cpu" else 0.0
        return max(settings.loss_budget_seconds_per_second, settings.loss_budget_ratio * progress)

    def _just_pulled(self, now: float) -> bool:
        return bool(self.pulls) and now - self.pulls[-1].at_seconds < self.settings.verify_seconds

    def _end_briefs(self, now: float, lost: Sequence[float]) -> Iterator[ResponseStep]:
        for pull in [pull for pull in self.pulls if pull.rung.brief]:
            if now - pull.at_seconds >= self.settings.freeze_seconds:
                self.useless[pull.rung.name] = now
                yield self._drop(pull, StepKind.RELEASED, lost, "its time is over")

    def _let_go(self, now: float, lost: Sequence[float]) -> list[ResponseStep]:
        if not self.pulls or now - self.named_at < self.hold_seconds:
            return []
        if now - self.released_at < self.settings.release_seconds:
            return []
        last = self.pulls[-1]
        if last.course is not None and last.course.limit < last.course.most:
            last.course = let_go(last.course)
            return []
        self.released_at = now
        return [self._drop(last, StepKind.RELEASED, lost, "no verdict names the culprit any more")]

    def _has_gone_quiet(self, sight: Observation) -> bool:
        """Nothing to hold back: gone, or using almost nothing although the rung would let it."""
        row = sight.rows.get(self.culprit)
        if not self.pulls:
            return False
        if row is None:
            return True
        used = max(pull.used_most for pull in self.pulls)
        if any(pull.course is not None for pull in self.pulls):
            used = min(pull.standing_use() for pull in self.pulls)
        if used <= 0 or self._activity(sight, row) > used * self.settings.quiet_ratio:
            self.quiet_since = None
            return False
        if self.quiet_since is None:
            self.quiet_since = sight.now_seconds
        growth = self.hold_seconds / self.settings.hold_seconds
        patience = min(self.settings.quiet_seconds * growth, max(_QUIET_MOST_SECONDS, self.settings.quiet_seconds))
        return sight.now_seconds - self.quiet_since >= patience

    def _activity(self, sight: Observation, row: int | None) -> float:
        """What the culprit uses of the resource: bytes/s of block IO, else cores; nothing tells for memory."""
        if row is None or self.resource == "memory":
            return 0.0
        return float((sight.io_bytes_per_second if self.resource == "blockio" else sight.cpu_cores)[row])

    def _drop(self, pull: _Pull, kind: StepKind, lost: Sequence[float], reason: str) -> ResponseStep:
        self.pulls.remove(pull)
        return self._told(pull, kind, lost, reason)

    def _told(self, pull: _Pull, kind: StepKind, lost: Sequence[float], reason: str) -> ResponseStep:
        return ResponseStep(
            kind=kind,
            rung=pull.rung.name,
            culprit=self.culprit,
            victim=pull.case.victim,
            resource=self.resource,
            before=pull.before,
            after=self._after(self._felt(pull.rung, lost)),
            reason=reason,
        )
