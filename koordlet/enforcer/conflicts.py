"""Conflicts: two strategies ask for different values of one knob of one cgroup. Pure.

The rule, in this order:
1. An idle cgroup has no weight of its own: `cpu.idle` 1 beats any `cpu.weight` of the same cgroup.
2. For a protected or latency-sensitive cgroup (SYSTEM, LSE, LSR, LS) the value that gives it more wins; for any other
   the one that gives it less. Values without an order (resource groups, sysctls) go on to the next line.
3. The gentler intent wins (`Strength`).
4. The strategy whose name sorts first wins.

Protocol state and actions are settled apart from each other by this rule, and then against each other by line 2: an
action that wins lies over the protocol state, which is remembered and put back when the action ends; one that loses is
a conflict, since an action loosens no limit of the protocol. Values without an order: the action. An action `cpu.idle`
1 lies over the protocol's `cpu.weight`.

A knob of processes (`oom_score_adj`, resource group, core scheduling group) applies to those of the cgroups below as
well, so of a cgroup and one below it the lower one wins.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from api.cgroup_path import ROOT, ancestors
from api.intents import Knob, Setting
from api.qos import QoSClass
from koordlet.host.knobs.spec import Scope
from koordlet.host.knobs.table import KNOBS

Owner = tuple[str, Knob]
"""Target and knob: one strategy owns each at a time."""


@dataclass(frozen=True, slots=True)
class Override:
    """A setting that lost, and the one that won."""

    loser: Setting
    winner: Setting


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be in effect at one knob of one target."""

    setting: Setting
    bases: tuple[Setting, ...] = ()
    """Protocol state below it, where it is an action: of the same knob, or the weight below `cpu.idle`."""


def resolve_layers(
    settings: Iterable[Setting], class_of: Callable[[str], QoSClass]
) -> tuple[Mapping[Owner, Wanted], list[Override], list[Override]]:
    """The winners with what they lie over, the settings that lost, and protocol state below an action."""
    given = list(settings)
    states, losses = resolve((one for one in given if one.protocol_state), class_of)
    actions, lost_actions = resolve((one for one in given if not one.protocol_state), class_of)
    losses += lost_actions
    overlaid: list[Override] = []
    winners = {owner: Wanted(state) for owner, state in states.items()}
    for owner, action in actions.items():
        state = states.get(owner)
        if state is None:
            winners[owner] = Wanted(action)
        elif state.value == action.value:
            continue
        elif _lies_over(action, state, wants_more=_wants_more(class_of(owner[0]))):
            winners[owner] = Wanted(action, (state,))
            overlaid.append(Override(state, action))
        else:
            losses.append(Override(action, state))
    _lay_idle_over_weights(winners, losses, overlaid)
    _drop_upper_layers(winners, losses)
    return winners, losses, overlaid


def _lies_over(action: Setting, state: Setting, *, wants_more: bool) -> bool:
    return _rank(action, wants_more=wants_more)[0] <= _rank(state, wants_more=wants_more)[0]


def _lay_idle_over_weights(winners: dict[Owner, Wanted], losses: list[Override], overlaid: list[Override]) -> None:
    for (target, knob), idle in list(winners.items()):
        if knob != Knob.CPU_IDLE or idle.setting.value.strip() != "1":
            continue
        weight = winners.pop((target, Knob.CPU_WEIGHT), None)
        if weight is None:
            continue
        layers = (weight.setting, *weight.bases)
        states = tuple(one for one in layers if one.protocol_state and not idle.setting.protocol_state)
        winners[target, knob] = Wanted(idle.setting, (*idle.bases, *states))
        overlaid += [Override(one, idle.setting) for one in states]
        losses += [Override(one, idle.setting) for one in layers if one not in states]


def _drop_upper_layers(winners: dict[Owner, Wanted], losses: list[Override]) -> None:
    lower = [wanted for (_, knob), wanted in winners.items() if KNOBS[knob].scope == Scope.PROCESSES]
    for wanted in lower:
        for path in (*ancestors(wanted.setting.target), ROOT):
            owner = (path, wanted.setting.knob)
            upper = winners.pop(owner, None) if path != wanted.setting.target else None
            if upper is not None:
                losses += [Override(one, wanted.setting) for one in (upper.setting, *upper.bases)]


def resolve(
    settings: Iterable[Setting], class_of: Callable[[str], QoSClass]
) -> tuple[Mapping[Owner, Setting], list[Override]]:
    """The winner for each target and knob, and the settings that lost. Values must have been checked."""
    groups: dict[Owner, list[Setting]] = {}
    for setting in settings:
        groups.setdefault((setting.target, setting.knob), []).append(setting)
    winners, losses = {}, []
    for owner, rivals in groups.items():
        if len(rivals) == 1:
            winners[owner] = rivals[0]
            continue
        wants_more = _wants_more(class_of(owner[0]))
        first = min(rivals, key=lambda setting: _rank(setting, wants_more=wants_more))
        winners[owner] = first
        losses += [Override(other, first) for other in rivals if other is not first and other.value != first.value]
    _drop_idle_weights(winners, losses)
    _drop_upper(winners, losses)
    return winners, losses


def _wants_more(qos: QoSClass) -> bool:
    return qos == QoSClass.SYSTEM or qos.latency_sensitive


def _rank(setting: Setting, *, wants_more: bool) -> tuple[float, int, str, str]:
    given = KNOBS[setting.knob].amount(setting.value)
    size = float(len(given)) if isinstance(given, frozenset) else given
    order = 0.0 if size is None or math.isnan(size) else -size if wants_more else size
    return order, setting.strength, setting.strategy, setting.value


def _drop_idle_weights(winners: dict[Owner, Setting], losses: list[Override]) -> None:
    for (target, knob), idle in list(winners.items()):
        if knob == Knob.CPU_IDLE and idle.value.strip() == "1":
            weight = winners.pop((target, Knob.CPU_WEIGHT), None)
            if weight is not None:
                losses.append(Override(weight, idle))


def _drop_upper(winners: dict[Owner, Setting], losses: list[Override]) -> None:
    lower = [setting for (_, knob), setting in winners.items() if KNOBS[knob].scope == Scope.PROCESSES]
    for setting in lower:
        for path in (*ancestors(setting.target), ROOT):
            upper = winners.pop((path, setting.knob), None) if path != setting.target else None
            if upper is not None:
                losses.append(Override(upper, setting))
