"""What the engine remembers between ticks as a value, without losing a bit."""

from dataclasses import fields

import msgspec

from api.verdicts import Verdict
from detector.checkpoint import Array, pack, unpack
from detector.judging.engine import RuleEngine
from detector.judging.rule_state import RuleState
from detector.rules import Rule


class OpenVerdict(msgspec.Struct, frozen=True, array_like=True):
    """An open verdict: the place of its rule, its cgroup, and what was told last."""

    rule: int
    cgroup: int
    verdict: Verdict


class Past(msgspec.Struct, frozen=True, array_like=True):
    """Losses and activity of the symptoms that correlate."""

    symptoms: tuple[str, ...]
    ids: Array
    values: Array


class EngineState(msgspec.Struct, frozen=True):
    """Everything that an engine remembers."""

    rules: tuple[Rule, ...]
    memory: dict[str, Array]
    open: tuple[OpenVerdict, ...]
    retired: tuple[Verdict, ...]
    past: Past


def engine_state(engine: RuleEngine) -> EngineState:
    """The engine's memory as a value."""
    return EngineState(
        rules=engine.rules,
        memory={field.name: pack(getattr(engine.memory, field.name)) for field in fields(RuleState)},
        open=tuple(OpenVerdict(rule, one, verdict) for (rule, one), verdict in engine.open.items()),
        retired=tuple(engine.retired),
        past=Past(engine.correlated, pack(engine.past.ids), pack(engine.past.values)),
    )


def restore_engine(engine: RuleEngine, state: EngineState) -> None:
    """Let an engine go on from a state. Of rules that the engine has no equal of, everything is forgotten."""
    rules = engine.rules
    engine.replace_rules(state.rules)
    for field in fields(RuleState):
        setattr(engine.memory, field.name, unpack(state.memory[field.name]))
    engine.open.update({(each.rule, each.cgroup): each.verdict for each in state.open})
    engine.retired[:] = state.retired
    if state.past.symptoms == engine.correlated:
        engine.past.restore(unpack(state.past.ids), unpack(state.past.values))
    if rules != state.rules:
        engine.replace_rules(rules)
        engine.retired.clear()
