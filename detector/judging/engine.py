"""Rule engine: ticks in, verdicts out, which open and close by `detector/hysteresis.py`.

A loss of many thresholds that was seen directly to be another cgroup's doing opens at once.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.verdict_text import USUAL
from api.verdicts import OWN_THREADS, Verdict, VerdictState
from detector.arrays import Flags, Floats
from detector.baselines.values import BaselinePolicy, ToldTime
from detector.breaks import Between, no_breaks
from detector.correlation import History
from detector.hysteresis import ONE_TICK, SECOND_NS, Hysteresis, Timing
from detector.judging.rule_state import RuleState
from detector.judging.sensing import RuleEvaluator, RuleTick
from detector.judging.updates import UpdateFilter
from detector.registry import default_rules, discover_symptoms
from detector.ring import Ring
from detector.rules import Rule, SuspicionPolicy
from detector.symptom import Symptom
from detector.view import View

CORRELATION_TICKS = 60
LEAST_TOLD_SECONDS = 1.0
"""Time of verdicts, as it counts, from which it is worth keeping."""
MIN_DIRECT_SHARE = 0.5
"""Part of a loss that must be seen directly to open a verdict at once."""


class RuleEngine:
    """Rules, symptoms and the state between ticks: held ticks, open verdicts, cool-downs, histories to correlate."""

    def __init__(
        self,
        rules: Sequence[Rule] | None = None,
        *,
        symptoms: Mapping[str, Symptom] | None = None,
        suspicion: SuspicionPolicy | None = None,
        policy: BaselinePolicy | None = None,
    ) -> None:
        """`policy` tells for how long verdicts by usual values are told until what they tell of is usual."""
        self.symptoms = dict(discover_symptoms() if symptoms is None else symptoms)
        taken = tuple(default_rules(self.symptoms) if rules is None else rules)
        self.memory = RuleState.empty(len(taken))
        self.open: dict[tuple[int, int], Verdict] = {}
        """Open verdicts, as last reported, by place of the rule and cgroup id."""
        self.correlated = tuple(name for name, symptom in self.symptoms.items() if symptom.blame.suspects)
        """Symptoms that correlate."""
        self.past = Ring(CORRELATION_TICKS, 2 * len(self.correlated))
        """Their losses, and after them the activity that goes with these, in the same order."""
        self.tick: RuleTick | None = None
        """The newest tick; None until the first by the rules in effect."""
        self.usual: set[str] = set()
        """Symptoms whose evidence has had usual values, so that a tick without them changes no answer."""
        self._seen: tuple[View, int] | None = None
        """The newest view and its monotonic time in nanoseconds, also where the rules are others since."""
        self._suspicion = suspicion or SuspicionPolicy()
        self._policy = policy or BaselinePolicy()
        self.retired: list[Verdict] = []
        self.calmed: Mapping[tuple[str, str], float] = {}
        """Victim and rule of what closed in the newest tick because the rule is not met any more, to the time in
        seconds for which earlier verdicts were open that count with it."""
        self._use_rules(taken)

    def _use_rules(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._sensing = RuleEvaluator(rules, self.symptoms, self._suspicion)
        self._updates = UpdateFilter(rules, self.symptoms, self.memory, self.open)
        self._hysteresis = Hysteresis([_timing(rule) for rule in rules])
        self._by_others = _per_rule([not self._is_own(rule) for rule in rules]).astype(np.bool_)
        self._at_once = _per_rule([rule.at_once_ratio for rule in rules])

    def _is_own(self, rule: Rule) -> bool:
        """Return whether the rule is about more threads than CPUs, which is usual for some workloads."""
        found = [self.symptoms.get(name) for name in rule.symptoms]  # a recorded rule may need one not installed here
        return all(symptom is not None and symptom.blame.named == OWN_THREADS for symptom in found)

    def replace_rules(self, rules: Sequence[Rule]) -> None:
        """Judge by other rules from the next step on.

        Rules that are equal to one there is keep their memory and open verdicts; open verdicts of the others close
        with the next step.
        """
        origin = [self.rules.index(rule) if rule in self.rules else -1 for rule in rules]
        self.memory.rearrange_rules(origin)
        place_of = {old: new for new, old in enumerate(origin) if old >= 0}
        self.retired += [verdict for (old, _), verdict in self.open.items() if old not in place_of]
        kept = {(place_of[old], one): verdict for (old, one), verdict in self.open.items() if old in place_of}
        self.open.clear()
        self.open.update(kept)
        self.tick = None
        self._use_rules(tuple(rules))

    @property
    def columns(self) -> frozenset[str]:
        """Dense columns that the symptoms read."""
        return frozenset(column for symptom in self.symptoms.values() for column in symptom.columns)

    @property
    def tables(self) -> frozenset[str]:
        """Blame tables that the symptoms read."""
        return frozenset(symptom.blame.table for symptom in self.symptoms.values() if symptom.blame.table)

    @property
    def held(self) -> NDArray[np.int64]:
        """Number of their last `of_ticks` ticks in which the rules were met, shape (rules, cgroups)."""
        return self._hysteresis.ticks_held(self.memory)

    @property
    def is_one_burst(self) -> Flags:
        """True where the ticks in which a rule was met may be one short burst of a cgroup that wanted no CPU before, so
        that it needs one tick more, shape (rules, cgroups)."""
        return self._hysteresis.is_one_burst(self.memory.held, self.memory.rested)

    def _is_held(self, tick: RuleTick) -> Flags:
        return np.asarray(self.held >= tick.needed)

    def cooldown_left_ns(self, now_ns: int) -> NDArray[np.int64]:
        """Time until the rules may open again, shape (rules, cgroups)."""
        return self._hysteresis.cooldown_left_ns(self.memory, now_ns)

    def step(
        self,
        view: View,
        now_ns: int,
        suspicious: Flags | None = None,
        between: Between = no_breaks,
    ) -> list[Verdict]:
        """Verdicts that open, change or close in this tick, by victim and rule.

        `now_ns` is a monotonic time; `suspicious` marks the cgroups that anomaly models suspect; `between` is called
        between the parts of the work.
        """
        memory = self.memory
        gone = frozenset(memory.align(view.ids).tolist())
        verdicts = [self._closing(place, one, view) for place, one in list(self.open) if one in gone]
        verdicts += [_closed(verdict, view) for verdict in self.retired]
        self.retired.clear()
        tick = self.tick = self._sensing.tick(view, now_ns, suspicious, self.history_of, between)
        self._seen = view, now_ns
        self._remember(tick)
        met = tick.met
        self._hysteresis.see(memory, met, tick.holds_open, now_ns, tick.undecided)
        memory.rested = np.where(tick.undecided, memory.rested, memory.rested << ONE_TICK | tick.resting)
        verdicts += self._close(view, now_ns)
        opening = self._hysteresis.may_open(memory, met, now_ns)
        opening &= self._is_held(tick) & ~self.is_one_burst | self._at_once_for(tick, opening)
        persisting = met & memory.is_open
        self._count_earlier(opening, now_ns)
        self._hysteresis.open(memory, opening, now_ns)
        for place in np.flatnonzero((opening | persisting).any(axis=1)).tolist():
            between()
            verdicts += self._updates.updates(tick, place, opening[place], persisting[place])
        return sorted(verdicts, key=lambda verdict: (verdict.victim, verdict.rule))

    def harmed(self) -> Flags:
        """Cgroups with an open verdict by what was seen, or on the way to one: this tick is not usual for them.

        A rule is on the way from half of its ticks on. Were each tick above a threshold left out, baselines would never
        see their own tails.
        """
        return np.asarray((self._harm() & ~self._by_usual_values()).any(axis=0))

    @property
    def is_next_decisive(self) -> bool:
        """Whether a loss that the newest tick showed, measured and not compared with what is usual, needs but one more
        tick for its verdict."""
        tick = self.tick
        if tick is None:
            return False
        waiting = tick.met & tick.can_be_met_early & tick.measured & ~self._by_usual_values() & self._by_others
        waiting &= self.held + 1 >= tick.needed
        waiting &= ~self._hysteresis.is_one_burst(self.memory.held << ONE_TICK, self.memory.rested << ONE_TICK)
        return bool(self._hysteresis.may_open(self.memory, waiting, tick.now_ns).any())

    def told(self) -> Flags:
        """Cgroups with an open verdict by what was seen, or that lack one only for their share or because they rested
        just before: were waits learned by such a tick, harm that comes later would have to exceed what they cost."""
        told = self.memory.is_open
        if self.tick is not None:
            told = told | self.tick.beyond_share | (self.tick.met & self._is_held(self.tick))
        return np.asarray((told & self._by_others & ~self._by_usual_values()).any(axis=0))

    def unusual(self) -> Flags:
        """Cgroups with a verdict by usual values that has not outlasted, or on the way to one."""
        return np.asarray((self._harm() & self._by_usual_values() & ~self._outlasting()).any(axis=0))

    def outlasted(self) -> Flags:
        """Cgroups with a verdict by usual values that has been open, with earlier ones, for as long as it is told."""
        return np.asarray((self._outlasting() & self._by_others).any(axis=0))

    @property
    def earlier_seconds(self) -> Mapping[tuple[str, str], float]:
        """Victim and rule of open verdicts to the time for which earlier ones were open, where it counts."""
        ids, earlier = self.memory.ids, self.memory.earlier_seconds
        places = np.argwhere(self.memory.is_open & (earlier > 0)).tolist()
        found = [(self.open.get((rule, int(ids[row]))), float(earlier[rule, row])) for rule, row in places]
        return {(verdict.victim, verdict.rule): seconds for verdict, seconds in found if verdict is not None}

    def told_times(self) -> tuple[ToldTime, ...]:
        """Of verdicts by usual values that count towards `exclude_seconds`, as of the newest tick; () before one."""
        memory = self.memory
        if self._seen is None:
            return ()
        view, now_ns = self._seen
        ended_ns = np.where(memory.is_open, now_ns, memory.closed_ns)
        seconds = memory.earlier_seconds + (ended_ns - memory.opened_ns) / SECOND_NS
        ages = (now_ns - ended_ns) / SECOND_NS
        counts = seconds * np.exp2(-ages / self._policy.half_life_seconds) >= LEAST_TOLD_SECONDS
        counts &= self._by_usual_values() & (seconds <= self._policy.exclude_seconds)
        wall_seconds = view.window.last.wall_ns / 1e9
        return tuple(
            ToldTime(
                view.cgroups[row].path,
                self.rules[place].name,
                float(seconds[place, row]),
                wall_seconds - float(ages[place, row]),
            )
            for place, row in np.argwhere(counts).tolist()
        )

    def take_over(self, told: Sequence[ToldTime], view: View, now_ns: int) -> None:
        """Before the first step: count the verdicts of an earlier run, of cgroups that are still there, as its own."""
        memory, wall_seconds = self.memory, view.window.last.wall_ns / 1e9
        memory.align(view.ids)
        rows = {info.path: row for row, info in enumerate(view.cgroups)}
        places = {rule.name: place for place, rule in enumerate(self.rules)}
        for each in told:
            if each.victim in rows and each.rule in places:
                place = places[each.rule], rows[each.victim]
                ended_ns = now_ns - int(max(wall_seconds - each.until_seconds, 0.0) * SECOND_NS)
                memory.earlier_seconds[place] = each.seconds
                memory.opened_ns[place] = memory.closed_ns[place] = ended_ns

    def _harm(self) -> Flags:
        if self.tick is None:
            return np.zeros(self.memory.is_open.shape, dtype=np.bool_)
        opening: Flags = self.tick.met & ~self.memory.is_open
        opening[opening] = 2 * self.held[opening] >= self.tick.needed[opening]
        return (self.memory.is_open | opening) & self._by_others

    def _outlasting(self) -> Flags:
        if self.tick is None:
            return np.zeros(self.memory.is_open.shape, dtype=np.bool_)
        found: Flags = self.memory.is_open & self._by_usual_values()
        told = (self.tick.now_ns - self.memory.opened_ns[found]) / SECOND_NS + self.memory.earlier_seconds[found]
        found[found] = told > self._policy.exclude_seconds
        return found

    def _by_usual_values(self) -> Flags:
        """Return for each rule, shape (rules, 1), whether its verdicts depend on usual values."""
        usual = [not self.usual.isdisjoint(rule.symptoms) for rule in self.rules]
        return np.array(usual, dtype=np.bool_).reshape(-1, 1)

    def _count_earlier(self, opening: Flags, now_ns: int) -> None:
        """Add up, of what opens, the time for which earlier verdicts were open; it ages as what is learned does.

        A level that comes and goes is told for as long as one that stays. Nothing is left of what came to count as
        usual: what opens after it lies above that.
        """
        memory = self.memory
        closed_ns = memory.closed_ns[opening]
        told = memory.earlier_seconds[opening] + (closed_ns - memory.opened_ns[opening]) / SECOND_NS
        told[told > self._policy.exclude_seconds] = 0.0
        half_lives = (now_ns - closed_ns) / SECOND_NS / self._policy.half_life_seconds
        memory.earlier_seconds[opening] = told * np.exp2(-half_lives)

    def history_of(self, name: str) -> History | None:
        """Losses and activity of a symptom up to this tick; None where it does not correlate."""
        if name not in self.correlated:
            return None
        number = self.correlated.index(name)
        return History(self.past.series(number), self.past.series(number + len(self.correlated)))

    def _remember(self, tick: RuleTick) -> None:
        # As `api.verdict_text.is_by_usual_values` tells of a verdict.
        self.usual |= {
            name for name, signal in tick.signals.items() if any(each.startswith(USUAL) for each in signal.evidence)
        }
        values = np.full((self.past.width, len(tick.view.ids)), np.nan)
        for number, name in enumerate(self.correlated):
            column = self.symptoms[name].blame.suspects
            if name in tick.signals and tick.view.has(column):
                values[number] = tick.signals[name].lost
                values[number + len(self.correlated)] = tick.view.rate(column)
        self.past.push(tick.view.ids, values)

    def _close(self, view: View, now_ns: int) -> list[Verdict]:
        calm = np.argwhere(self._hysteresis.close(self.memory, now_ns)).tolist()
        closing = [self._closing(place, int(view.ids[row]), view) for place, row in calm]
        earlier = [float(self.memory.earlier_seconds[place, row]) for place, row in calm]
        self.calmed = {(each.victim, each.rule): seconds for each, seconds in zip(closing, earlier, strict=True)}
        return closing

    def _closing(self, place: int, identity: int, view: View) -> Verdict:
        return _closed(self.open.pop((place, identity)), view)

    def _at_once_for(self, tick: RuleTick, candidates: Flags) -> Flags:
        """Mark rows whose loss is so large, and mostly seen directly to be another's doing, that one tick is enough."""
        strong = candidates.copy()
        at_once = np.broadcast_to(self._at_once, strong.shape)[strong]
        strong[strong] = tick.counted[strong] >= np.maximum(tick.plain[strong], tick.limits[strong]) * at_once
        for place in np.flatnonzero(strong.any(axis=1)).tolist():
            for name, rows in self._updates.by_symptom(tick, place, np.flatnonzero(strong[place])):
                signal, table = tick.signals[name], self.symptoms[name].blame.table
                can_be_told = signal.measured and not signal.is_preliminary
                blame = tick.view.blame(table) if table and can_be_told else None
                enough = signal.lost[rows] * MIN_DIRECT_SHARE
                seen = np.zeros(len(rows)) if blame is None else blame.sums(tick.view.ids[rows], named=True)
                strong[place, rows] = seen >= enough
        return strong


def _closed(last: Verdict, view: View) -> Verdict:
    return msgspec.structs.replace(last, state=VerdictState.CLOSE, time=view.window.last.wall_ns / 1e9)


def _timing(rule: Rule) -> Timing:
    return Timing(rule.ticks, rule.of_ticks, rule.hold_seconds, rule.cooldown_seconds)


def _per_rule(values: Sequence[float]) -> Floats:
    """A value for each rule, shape (rules, 1)."""
    return np.array(values, dtype=np.float64).reshape(-1, 1)
