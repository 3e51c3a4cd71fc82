"""From ticks to verdicts: a rule opens one when it holds N of M ticks, closes it with hysteresis and a cool-down."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo
from api.verdicts import Severity, State, Verdict
from api.window import Window
from detector.attribution import Past, attribute
from detector.look import RuleLook, SymptomLook, Why
from detector.ring import Ring
from detector.rules import DEFAULT_RULES, Rule
from detector.symptom import Signal, Symptom, discover_symptoms
from detector.view import Baselines, Floats, View

CORRELATION_TICKS = 60
CHANGE = 2.0
"""An update is told when the loss grows or shrinks by this factor, or severity, cause or first culprit change."""


@dataclass(frozen=True, slots=True)
class _Tick:
    """What all rules share in one tick."""

    view: View
    signals: Mapping[str, Signal]
    now_ns: int


class Engine:
    """Holds what must be remembered between ticks: rings of losses, open verdicts, cool-downs."""

    def __init__(
        self,
        rules: Sequence[Rule] = DEFAULT_RULES,
        *,
        symptoms: Mapping[str, Symptom] | None = None,
        baselines: Baselines | None = None,
        span_seconds: float = 1.0,
    ) -> None:
        self._symptoms = dict(discover_symptoms() if symptoms is None else symptoms)
        self._columns = frozenset(column for symptom in self._symptoms.values() for column in symptom.columns)
        self._baselines = baselines
        self._span_seconds = span_seconds
        self._rules = [_RuleState(rule, self._symptoms) for rule in rules]
        self._retired: list[_RuleState] = []
        correlated = {name: symptom for name, symptom in self._symptoms.items() if symptom.blame.suspects}
        self._past = {name: (Ring(CORRELATION_TICKS), Ring(CORRELATION_TICKS)) for name in correlated}

    def step(self, window: Window, now_ns: int) -> list[Verdict]:
        """Verdicts that open, change or close in the newest tick, by victim and rule; none with fewer than two frames.

        `now_ns` is a monotonic time and serves the cool-down.
        """
        if len(window.frames) < 2 or window.seconds <= 0:
            return []
        view = View(window, self._columns, span_seconds=self._span_seconds, baselines=self._baselines)
        sensed = {name: symptom.sense(view) for name, symptom in self._symptoms.items()}
        tick = _Tick(view, {name: signal for name, signal in sensed.items() if signal is not None}, now_ns)
        self._remember(tick)
        found = [verdict for state in self._retired for verdict in state.retire(tick)]
        self._retired.clear()
        found += [verdict for state in self._rules for verdict in state.step(tick, self._past)]
        return sorted(found, key=lambda verdict: (verdict.victim, verdict.rule))

    def replace_rules(self, rules: Sequence[Rule]) -> None:
        """Judge by other rules from the next step on.

        Rules that are equal to one there is keep their memory and open verdicts; what the others had open closes with
        the next step.
        """
        present = {state.rule.name: state for state in self._rules}
        kept = {rule.name for rule in rules if rule.name in present and present[rule.name].rule == rule}
        self._retired += [state for name, state in present.items() if name not in kept]
        self._rules = [present[rule.name] if rule.name in kept else _RuleState(rule, self._symptoms) for rule in rules]

    def look(self, path: str) -> tuple[RuleLook, ...]:
        """What each rule knows of an open verdict."""
        return tuple(look for state in self._rules for look in state.look(path))

    def _remember(self, tick: _Tick) -> None:
        for name, (lost, activity) in self._past.items():
            column = self._symptoms[name].blame.suspects
            if name in tick.signals and tick.view.has(column):
                lost.push(tick.view.ids, tick.signals[name].lost)
                activity.push(tick.view.ids, tick.view.rate(column))


class _RuleState:
    """One rule and its memory."""

    def __init__(self, rule: Rule, symptoms: Mapping[str, Symptom]) -> None:
        self.rule = rule
        self._symptoms = symptoms
        self._held, self._calm = Ring(rule.of_ticks), Ring(rule.of_ticks)
        self._open: dict[int, Verdict] = {}
        self._cooling: dict[int, int] = {}
        self._thresholds: tuple[tuple[CgroupInfo, ...], Floats] = ((), np.empty(0))

    def step(self, tick: _Tick, past: Mapping[str, tuple[Ring, Ring]]) -> Iterator[Verdict]:
        names = [name for name in self.rule.symptoms if name in tick.signals]
        rests = any(name in tick.signals for name in self.rule.unless_measured)
        whole = all(name in tick.signals for name in self.rule.all_of)
        if rests or not whole or not names:
            names = []
        ids = tick.view.ids
        limits = self._limits(tick.view.cgroups)
        lost = {name: np.nan_to_num(tick.signals[name].lost) for name in names}
        self._held.push(ids, self._meets(lost, limits, len(ids)).astype(np.float64))
        self._calm.push(ids, (~self._meets(lost, limits * self.rule.close_ratio, len(ids))).astype(np.float64))
        yield from self._gone(tick)
        held = np.nansum(self._held.values, axis=0) >= self.rule.ticks
        calm = np.nansum(self._calm.values, axis=0) >= self.rule.of_ticks
        self._cooling = {identity: until for identity, until in self._cooling.items() if until > tick.now_ns}
        for row in np.flatnonzero(held | np.isin(ids, np.array(list(self._open), dtype=np.uint64))).tolist():
            identity = int(ids[row])
            before = self._open.get(identity)
            if before is None and (identity in self._cooling or calm[row]):
                continue
            if before is not None and calm[row]:
                yield self._close(identity, tick)
            elif lost:
                verdict = self._judge(tick, row, lost=lost, limit=float(limits[row]), past=past)
                if before is None or _changed(before, verdict):
                    state, since = (State.OPEN, verdict.time) if before is None else (State.UPDATE, before.since)
                    self._open[identity] = msgspec.structs.replace(verdict, state=state, since=since)
                    yield self._open[identity]

    def look(self, path: str) -> Iterator[RuleLook]:
        rule = self.rule
        for verdict in self._open.values():
            if verdict.victim == path:
                symptoms = (SymptomLook(verdict.cause, verdict.lost_seconds_per_second, exceeds=True),)
                yield RuleLook(
                    rule=rule.name,
                    why=Why.OPEN,
                    symptoms=symptoms,
                    threshold=rule.threshold,
                    held_ticks=rule.ticks,
                    needed_ticks=rule.ticks,
                    of_ticks=rule.of_ticks,
                    cooldown_left_seconds=0.0,
                    is_open=True,
                    culprits=verdict.culprits,
                    confidence=verdict.confidence,
                    evidence=verdict.evidence,
                )

    def _meets(self, lost: Mapping[str, Floats], limits: Floats, count: int) -> NDArray[np.bool_]:
        if not lost:
            return np.zeros(count, dtype=np.bool_)
        met = np.ones(count, dtype=np.bool_)
        for name in self.rule.all_of:
            met &= lost[name] >= limits
        either = [lost[name] >= limits for name in self.rule.any_of if name in lost]
        if self.rule.any_of:
            met &= np.any(either, axis=0) if either else False
        return met

    def _limits(self, cgroups: tuple[CgroupInfo, ...]) -> Floats:
        if self._thresholds[0] != cgroups:
            self._thresholds = (cgroups, np.array([self.rule.threshold_of(info) for info in cgroups], dtype=float))
        return self._thresholds[1]

    def _gone(self, tick: _Tick) -> Iterator[Verdict]:
        alive = set(tick.view.ids.tolist())
        for identity in [identity for identity in self._open if identity not in alive]:
            yield self._close(identity, tick)

    def retire(self, tick: _Tick) -> Iterator[Verdict]:
        """Close what is open, as the rule is no more."""
        for identity in list(self._open):
            yield self._close(identity, tick)

    def _close(self, identity: int, tick: _Tick) -> Verdict:
        self._cooling[identity] = tick.now_ns + int(self.rule.cooldown_seconds * 1e9)
        last = self._open.pop(identity)
        return msgspec.structs.replace(last, state=State.CLOSE, time=tick.view.window.last.wall_ns / 1e9)

    def _judge(
        self,
        tick: _Tick,
        row: int,
        *,
        lost: Mapping[str, Floats],
        limit: float,
        past: Mapping[str, tuple[Ring, Ring]],
    ) -> Verdict:
        """The verdict on the symptom that costs most; its state is for the caller to say."""
        name = max(lost, key=lambda each: float(lost[each][row]))
        symptom, signal = self._symptoms[name], tick.signals[name]
        history = None
        if name in past and past[name][0].values.shape[1:] == (len(tick.view.ids),):
            history = Past(past[name][0].values[:, row], past[name][1].values, limit)
        blamed = attribute(tick.view, row, symptom=symptom, signal=signal, past=history)
        evidence = {f"{each}.lost": float(amounts[row]) for each, amounts in lost.items()}
        evidence |= {each: float(column[row]) for each, column in signal.evidence.items()}
        return Verdict(
            time=tick.view.window.last.wall_ns / 1e9,
            state=State.UPDATE,
            victim=tick.view.cgroups[row].path,
            resource=symptom.resource,
            cause=symptom.cause,
            lost_seconds_per_second=float(lost[name][row]),
            severity=_severity(float(lost[name][row]) / limit),
            culprits=blamed.culprits,
            confidence=blamed.confidence,
            evidence={each: value for each, value in evidence.items() if np.isfinite(value)},
            rule=self.rule.name,
        )


def _severity(times: float) -> Severity:
    """By how many times the threshold is lost: high from 8, medium from 3."""
    return Severity.HIGH if times >= 8 else Severity.MEDIUM if times >= 3 else Severity.LOW


def _changed(before: Verdict, after: Verdict) -> bool:
    factor = (after.lost_seconds_per_second + 1e-9) / (before.lost_seconds_per_second + 1e-9)
    return (
        not 1 / CHANGE < factor < CHANGE
        or (before.severity, before.cause) != (after.severity, after.cause)
        or [culprit.path for culprit in before.culprits[:1]] != [culprit.path for culprit in after.culprits[:1]]
    )
