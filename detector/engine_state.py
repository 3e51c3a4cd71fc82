"""What the engine remembers between ticks as a value, without losing a bit."""

from dataclasses import fields

import msgspec

from api.verdicts import Verdict
from detector.checkpoint import Array, pack, unpack
from detector.engine import Engine
from detector.memory import RuleMemory
from detector.rules import Rule


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """An open verdict: the place of its rule, its cgroup, and what was told last."""

    rule: int
    cgroup: int
    verdict: Verdict


class Past(msgspec.Struct, frozen=True, array_like=True):
    """Losses and activity of one symptom that correlates."""

    ids: Array
    lost: Array
    activity: Array


class EngineState(msgspec.Struct, frozen=True):
    """Everything that an engine remembers."""

    rules: tuple[Rule, ...]
    memory: dict[str, Array]
    open: tuple[Standing, ...]
    retired: tuple[Verdict, ...]
    past: dict[str, Past]


def engine_state(engine: Engine) -> EngineState:
    """The engine's memory as a value."""
    return EngineState(
        rules=engine.rules,
        memory={field.name: pack(getattr(engine.memory, field.name)) for field in fields(RuleMemory)},
        open=tuple(Standing(rule, one, verdict) for (rule, one), verdict in engine.open.items()),
        retired=tuple(engine.retired),
        past={
            name: Past(pack(lost.ids), pack(lost.values), pack(activity.values))
            for name, (lost, activity) in engine.past.items()
        },
    )


def restore_engine(engine: Engine, state: EngineState) -> None:
    """Let an engine go on from a state. Of rules that the engine has no equal of, everything is forgotten."""
    rules = engine.rules
    engine.replace_rules(state.rules)
    for field in fields(RuleMemory):
        setattr(engine.memory, field.name, unpack(state.memory[field.name]))
    engine.open.update({(each.rule, each.cgroup): each.verdict for each in state.open})
    engine.retired[:] = state.retired
    for name, past in state.past.items():
        if name in engine.past:
            lost, activity = engine.past[name]
            lost.restore(unpack(past.ids), unpack(past.lost))
            activity.restore(unpack(past.ids), unpack(past.activity))
    if rules != state.rules:
        engine.replace_rules(rules)
        engine.retired.clear()
