"""Evaluation of all rules in one tick: losses against thresholds, for every rule and cgroup at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo
from detector.arrays import Flags, Floats
from detector.attribution import Attributor
from detector.breaks import Between
from detector.correlation import History
from detector.rules import Rule, SuspicionPolicy
from detector.symptom import Signal, Symptom
from detector.view import View

PROGRESS = "cpu.oncpu_ns"
WAITS = "cpu.wait_count"
SMALL_CORES = 0.05
"""CPU time below which a cgroup's thresholds may fall with it."""
LEAST_WAITS = 10
"""Waits in a tick from which they do: fewer say little of how long the next one takes."""
SHORT_WAIT_SECONDS = 5e-5
"""The threshold of a small cgroup is at least this for each wait: to be woken on a shared CPU takes some 15 us, in one
tick of a hundred 45 us, whatever the neighbours are."""
WHOLE_SECONDS = 0.9
"""Time whose losses small thresholds are for, in an early tick: what a usual one spans at least."""
EARLY_SECONDS = 1.0
"""What an early tick spans at most, of long intervals."""
USUAL_RATIO = 2.0
"""What is usual for a cgroup, or what waits of ordinary length cost it, raises its threshold to so many times that of
the rule at most: what it learned beside a neighbour hides no more."""
DEFAULT_THRESHOLD = 0.05
"""Lost seconds per second above which a tick is harmed by a symptom that no rule is about."""


@dataclass(frozen=True, slots=True)
class RuleTick:
    """Matrices have shape (rules, cgroups)."""

    view: View
    now_ns: int
    signals: Mapping[str, Signal]
    attributor: Attributor
    superseded: Flags
    """Rules that are superseded (`unless_measured`), shape (rules, 1)."""
    lost: Floats
    """Loss against the threshold: the least of `all_of`, the most of `any_of`; NaN where not measured."""
    counted: Floats
    """The part of it that counts against the threshold: what the cgroup may hold against others (`Signal.claim`), asked
    for from the closing threshold on; the whole loss below that."""
    worst: NDArray[np.int16]
    """The symptom of the rule that costs most, as its place among all symptoms."""
    plain: Floats
    """Thresholds of the rules as their settings state them; infinite where a rule is not about a cgroup."""
    limits: Floats
    """Thresholds by what the cgroups use and what is usual for them."""
    closing: Floats
    """Loss below which a verdict may close."""
    eased: Floats
    """Thresholds of this tick: those above, higher in an early tick where they are small, lower under suspicion."""
    needed: NDArray[np.int64]
    """Ticks needed to open."""
    suspicious: Flags
    """Cgroups that anomaly models suspect, shape (cgroups,)."""
    by_waits: Flags
    """Rules whose thresholds are relative to the waits for a CPU (`least_ratio`), shape (rules, 1)."""
    measured: Flags
    """Losses that were measured, not estimated or what other measures leave."""

    @property
    def beyond_share(self) -> Flags:
        """True where the loss is above the threshold, and what the cgroup may hold against others is not."""
        return np.asarray((self.lost >= self.eased) & (self.counted < self.eased) & ~self.superseded)

    @property
    def met(self) -> Flags:
        """True where a rule that is not superseded is above its threshold."""
        return np.asarray((self.counted >= self.eased) & ~self.superseded)

    @property
    def holds_open(self) -> Flags:
        """True where the loss is too large for a verdict to close."""
        return np.asarray((self.counted >= self.closing) & ~self.superseded)

    @property
    def undecided(self) -> Flags:
        """True where the tick came too early to tell whether the rule is met."""
        return np.asarray((self.counted >= self.limits) & (self.counted < self.eased) & ~self.superseded)

    @property
    def resting(self) -> Flags:
        """True where the cgroup wanted no CPU in this tick, nor waited through it; for rules `by_waits` only, and not
        in an early tick, which is too short to tell."""
        if self.view.is_early or not self.view.has(WAITS, PROGRESS):
            return np.zeros(self.lost.shape, dtype=np.bool_)
        idle = (self.view.rate(WAITS) == 0) & (self.view.rate(PROGRESS) == 0)
        return np.asarray(idle & ~(self.lost > 0) & self.by_waits)

    @property
    def can_be_met_early(self) -> Flags:
        """True where the same loss in an early tick meets the rule too."""
        early = _of_early(self.limits, self.plain, min(self.view.seconds / 2, EARLY_SECONDS))
        return np.asarray((self.counted >= np.where(self.eased < self.limits, self.eased, early)) & ~self.superseded)


class RuleEvaluator:
    """Rules and symptoms, laid out so that a tick is few array operations."""

    def __init__(self, rules: Sequence[Rule], symptoms: Mapping[str, Symptom], suspicion: SuspicionPolicy) -> None:
        self._rules, self._symptoms, self._suspicion = rules, symptoms, suspicion
        self._composed_of = [rule.symptoms for rule in rules]
        self._place = {name: place for place, name in enumerate(symptoms)}
        self._progress_ratios = np.array([[rule.progress_ratio] for rule in rules], dtype=np.float64).reshape(-1, 1)
        self._least_ratios = np.array([[rule.least_ratio] for rule in rules], dtype=np.float64).reshape(-1, 1)
        self._usual = [
            {symptoms[name].usual for name in rule.symptoms if name in symptoms and symptoms[name].usual}
            for rule in rules
        ]
        self._close_ratios = np.array([[rule.close_ratio] for rule in rules], dtype=np.float64).reshape(-1, 1)
        self._thresholds: Mapping[str, Floats] = {}
        self._selected: tuple[tuple[CgroupInfo, ...], Floats] = ((), np.empty((len(rules), 0)))

    def tick(
        self,
        view: View,
        now_ns: int,
        suspicious: Flags | None,
        history_of: Callable[[str], History | None],
        between: Between,
    ) -> RuleTick:
        """Sense all symptoms; `history_of` gives the past of those that correlate, `between` is called before each."""
        sensed = {}
        for name, symptom in self._symptoms.items():
            between()
            sensed[name] = symptom.sense(view)
        signals = {name: signal for name, signal in sensed.items() if signal is not None}
        present = [[name for name in names if name in signals] for names in self._composed_of]
        losses = {name: signal.lost for name, signal in signals.items()}
        lost, worst = self._compose(present, losses, len(view.ids))
        plain = self._of_progress(self._limits(view.cgroups), view)
        limits = self._raised(self._of_small(plain, view), plain, view)
        suspected = np.zeros(len(view.ids), dtype=np.bool_) if suspicious is None else suspicious
        measured = self._measured(present, signals, worst)
        eased = suspected & measured
        ticks = np.array([[rule.ticks] for rule in self._rules], dtype=np.int64).reshape(-1, 1)
        superseded = [[any(name in signals for name in rule.unless_measured)] for rule in self._rules]
        closing = self._closing(limits, plain, view)
        opening = _of_early(limits, plain, view.seconds) if view.is_early else limits
        doubted = np.maximum(np.maximum(plain, limits) * self._suspicion.threshold_ratio, closing)
        least = np.where(eased, np.minimum(opening, doubted), opening)
        return RuleTick(
            view=view,
            now_ns=now_ns,
            signals=signals,
            attributor=Attributor(view, self._symptoms, signals, self._thresholds, history_of),
            superseded=np.array(superseded, dtype=np.bool_).reshape(-1, 1),
            lost=lost,
            counted=self._counted(lost, np.minimum(closing, least * self._close_ratios), signals),
            worst=worst,
            plain=plain,
            limits=limits,
            closing=closing,
            eased=least,
            needed=np.where(eased, np.minimum(ticks, self._suspicion.ticks), ticks),
            suspicious=suspected,
            by_waits=np.asarray(self._least_ratios < 1.0, dtype=np.bool_),
            measured=measured,
        )

    def _measured(
        self, present: Sequence[Sequence[str]], signals: Mapping[str, Signal], worst: NDArray[np.int16]
    ) -> Flags:
        """Whether the losses of a rule were measured: all that it needs, and of others that which costs most."""
        measured = {name for name, signal in signals.items() if signal.measured}
        needed = [
            [bool(names) and measured.issuperset(rule.all_of)] for rule, names in zip(self._rules, present, strict=True)
        ]
        by_symptom = np.array([name in measured for name in self._symptoms], dtype=np.bool_)
        return np.asarray(by_symptom[worst] & np.array(needed, dtype=np.bool_).reshape(-1, 1))

    def _compose(
        self, present: Sequence[Sequence[str]], losses: Mapping[str, Floats], count: int
    ) -> tuple[Floats, NDArray[np.int16]]:
        lost = np.full((len(self._rules), count), np.nan)
        worst = np.zeros((len(self._rules), count), dtype=np.int16)
        for place, (rule, names) in enumerate(zip(self._rules, present, strict=True)):
            composed = _composed(rule, losses)
            if composed is None:
                continue
            lost[place] = composed
            places = np.array([self._place[name] for name in names], dtype=np.int16)
            several = len(names) > 1
            costs = [np.nan_to_num(losses[name]) for name in names] if several else []
            worst[place] = places[np.argmax(costs, axis=0)] if several else places[0]
        return lost, worst

    def _counted(self, lost: Floats, least: Floats, signals: Mapping[str, Signal]) -> Floats:
        """The losses; of those that would open or hold a verdict, which are the `least` ones and those above, no more
        than what the cgroup may claim."""
        near = lost >= least
        counted, losses = lost, {name: signal.lost for name, signal in signals.items()}
        for name, signal in signals.items():
            if signal.claim is None:
                continue
            rows = np.flatnonzero(near[[name in names for names in self._composed_of]].any(axis=0))
            if not len(rows):
                continue
            counted = lost.copy() if counted is lost else counted
            losses[name] = signal.lost.copy()
            losses[name][rows] = np.minimum(signal.lost[rows], signal.claim(rows))
        if counted is not lost:
            for place, rule in enumerate(self._rules):
                composed = _composed(rule, losses)
                if composed is not None:
                    counted[place] = composed
        return counted

    def _limits(self, cgroups: tuple[CgroupInfo, ...]) -> Floats:
        if self._selected[0] is not cgroups and self._selected[0] != cgroups:
            before = zip(self._selected[0], self._selected[1].T, strict=True)
            known = {info.id: (info, column) for info, column in before}
            columns = [
                column if column is not None and (info is earlier or info == earlier) else self._limits_of(info)
                for info in cgroups
                for earlier, column in (known.get(info.id, (None, None)),)
            ]
            limits = np.array(columns, dtype=np.float64).reshape(len(cgroups), len(self._rules)).T.copy()
            self._selected = (cgroups, limits)
            self._thresholds = self._by_symptom(limits)
        return self._selected[1]

    def _of_progress(self, limits: Floats, view: View) -> Floats:
        """The thresholds, for rules with a `progress_ratio` at least that part of the CPU time used."""
        if not self._progress_ratios.any() or not view.has(PROGRESS):
            return limits
        return np.maximum(limits, self._progress_ratios * np.nan_to_num(view.rate(PROGRESS)))

    def _of_small(self, limits: Floats, view: View) -> Floats:
        """The thresholds, for rules with a `least_ratio` smaller in proportion where little CPU time is used, and at
        least what waits of ordinary length come to there."""
        if not self._falls(view):
            return limits
        parts = np.where(_is_small(view), view.rate(PROGRESS) / SMALL_CORES, 1.0)
        least = np.maximum(limits * np.clip(np.nan_to_num(parts, nan=1.0), self._least_ratios, 1.0), _short_waits(view))
        return np.where(self._least_ratios < 1.0, np.minimum(least, USUAL_RATIO * limits), limits)

    def _closing(self, limits: Floats, plain: Floats, view: View) -> Floats:
        """The thresholds to close; for waits that are no longer than ordinary ones no verdict stays open."""
        closing = limits * self._close_ratios
        if not self._falls(view):
            return closing
        short = np.minimum(_short_waits(view), USUAL_RATIO * plain)
        return np.where(self._least_ratios < 1.0, np.maximum(closing, short), closing)

    def _falls(self, view: View) -> bool:
        return bool((self._least_ratios < 1.0).any()) and view.has(PROGRESS, WAITS)

    def _raised(self, limits: Floats, plain: Floats, view: View) -> Floats:
        """The thresholds, at least what one ordinary tick of the cgroup in a thousand exceeds."""
        raised = limits
        for place, signals in enumerate(self._usual):
            for signal in signals & view.judgements.keys():
                if raised is limits:
                    raised = limits.copy()
                usual = np.nan_to_num(view.extreme(signal))
                raised[place] = np.maximum(raised[place], np.minimum(usual, USUAL_RATIO * plain[place]))
        return raised

    def _limits_of(self, info: CgroupInfo) -> Floats:
        return np.array([rule.threshold_of(info) for rule in self._rules], dtype=np.float64)

    def _by_symptom(self, limits: Floats) -> dict[str, Floats]:
        """Of each symptom the thresholds of the first rule about it, also for cgroups that the rule is not about."""
        usual = {name: np.full(limits.shape[1], DEFAULT_THRESHOLD) for name in self._symptoms}
        for place, rule in reversed(list(enumerate(self._rules))):
            whole = np.where(np.isfinite(limits[place]), limits[place], rule.threshold)
            usual |= dict.fromkeys(rule.symptoms, whole)
        return usual


def _is_small(view: View) -> Flags:
    """Cgroups whose thresholds may fall. As many waits a second as in a whole tick are enough in an early one."""
    enough = view.rate(WAITS) * max(view.seconds, 1.0) >= LEAST_WAITS
    return np.asarray(enough & (view.rate(PROGRESS) < SMALL_CORES))


def _short_waits(view: View) -> Floats:
    """What waits of ordinary length cost a cgroup; nothing of one that uses twice as much as a small one."""
    is_small = np.clip(2.0 - view.rate(PROGRESS) / SMALL_CORES, 0.0, 1.0)
    return np.asarray(np.nan_to_num(view.rate(WAITS) * is_small) * SHORT_WAIT_SECONDS)


def _of_early(limits: Floats, plain: Floats, seconds: float) -> Floats:
    """The thresholds; in an early tick those below a rule's own ask for as much lost time as in a whole one.

    At 0.02 s/s three slices of one neighbour are enough for half a second, and say nothing of whether it lasts.
    """
    part = min(seconds / WHOLE_SECONDS, 1.0)
    return np.where(limits < plain, np.minimum(limits / part, plain), limits)


def _composed(rule: Rule, losses: Mapping[str, Floats]) -> Floats | None:
    """What a rule makes of the losses by symptom; None where one that it needs is not measured."""
    either = [name for name in rule.any_of if name in losses]
    if any(name not in losses for name in rule.all_of) or (rule.any_of and not either):
        return None
    parts = [losses[name] for name in rule.all_of]
    parts += [_largest([losses[name] for name in either])] if either else []
    return parts[0] if len(parts) == 1 else np.asarray(np.minimum.reduce(parts), dtype=np.float64)


def _largest(losses: Sequence[Floats]) -> Floats:
    return losses[0] if len(losses) == 1 else np.asarray(np.fmax.reduce(losses), dtype=np.float64)
