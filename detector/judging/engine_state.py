"""State of the rule engine between ticks as a value, without losing a bit."""

from collections.abc import Sequence
from dataclasses import fields

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.verdicts import Verdict
from detector.arrays import Floats
from detector.checkpoint import Array, pack, unpack
from detector.judging.engine import RuleEngine
from detector.judging.rule_state import RuleState
from detector.rules import Rule

_LATER = ("earlier_seconds", "looked_ns", "rested")
"""Fields of `RuleState` that states of earlier versions do not have."""


class OpenVerdict(msgspec.Struct, frozen=True, array_like=True):
    """An open verdict: the place of its rule, its cgroup, and its last line."""

    rule: int
    cgroup: int
    verdict: Verdict


class Past(msgspec.Struct, frozen=True, array_like=True):
    """Losses and activity of the symptoms that correlate."""

    symptoms: tuple[str, ...]
    ids: Array
    values: Array


class EngineState(msgspec.Struct, frozen=True):
    """State of an engine."""

    rules: tuple[Rule, ...]
    memory: dict[str, Array]
    open: tuple[OpenVerdict, ...]
    retired: tuple[Verdict, ...]
    past: Past
    symptoms: tuple[str, ...] = ()
    """All symptoms, in the order that `memory` counts them in; empty in states of versions that did not keep it."""
    usual: tuple[str, ...] = ()
    """Those of them whose evidence has had usual values."""


def engine_state(engine: RuleEngine) -> EngineState:
    """Return the engine's state as a value."""
    return EngineState(
        rules=engine.rules,
        memory={_key(field.name): pack(getattr(engine.memory, field.name)) for field in fields(RuleState)},
        open=tuple(OpenVerdict(rule, one, verdict) for (rule, one), verdict in engine.open.items()),
        retired=tuple(engine.retired),
        past=Past(engine.correlated, pack(engine.past.ids), pack(engine.past.values)),
        symptoms=tuple(engine.symptoms),
        usual=tuple(sorted(engine.usual)),
    )


def restore_engine(engine: RuleEngine, state: EngineState) -> None:
    """Let an engine go on from a state. Of rules that the engine has no equal of, everything is forgotten."""
    rules = engine.rules
    engine.replace_rules(state.rules)
    later = [name for name in _LATER if name not in state.memory]
    for field in fields(RuleState):
        if field.name not in later:
            setattr(engine.memory, field.name, unpack(state.memory[_key(field.name)]))
    for name in later:
        engine.memory.forget(name)
    engine.open.update({(each.rule, each.cgroup): each.verdict for each in state.open})
    engine.retired[:] = state.retired
    engine.usual.update(state.usual)
    if state.symptoms:
        engine.memory.reported_symptom = _renumbered(
            engine.memory.reported_symptom, state.symptoms, tuple(engine.symptoms)
        )
    engine.past.restore(unpack(state.past.ids), _series(state.past, engine.correlated))
    if rules != state.rules:
        engine.replace_rules(rules)
        engine.retired.clear()


def _key(name: str) -> str:
    """The name of a field in `koord.judge/v1`, which calls `reported_*` `told_*`."""
    return name.replace("reported_", "told_")


def _renumbered(numbers: NDArray[np.int16], before: Sequence[str], after: Sequence[str]) -> NDArray[np.int16]:
    """Positions among the symptoms `before` as positions among those `after`; -1 where a symptom is not there."""
    if tuple(before) == tuple(after):
        return numbers
    place = {name: number for number, name in enumerate(after)}
    table = np.array([place.get(name, -1) for name in before], dtype=np.int16)
    return np.where(numbers < 0, numbers, table[numbers])


def _series(past: Past, correlated: Sequence[str]) -> Floats:
    """The recorded series in the order of the symptoms that correlate now; NaN for one that was not recorded."""
    values: Floats = unpack(past.values)
    if past.symptoms == tuple(correlated):
        return values
    series = np.full((len(values), 2 * len(correlated), values.shape[2]), np.nan)
    before = {name: number for number, name in enumerate(past.symptoms)}
    for number, name in enumerate(correlated):
        if name in before:
            old = before[name]
            series[:, number] = values[:, old]
            series[:, number + len(correlated)] = values[:, old + len(past.symptoms)]
    return series
