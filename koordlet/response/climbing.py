"""The next rung of a ladder, and what is known of its victims before it is in effect."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from api.intents import Intent, Strength
from koordlet.response import rung_judgement as judgement
from koordlet.response.applied_rung import AppliedRung
from koordlet.response.bystanders import busy_members, find_bystanders
from koordlet.response.history import History
from koordlet.response.ladders import LADDERS
from koordlet.response.observation import Observation
from koordlet.response.rungs.limits import start_limit
from koordlet.response.rungs.rung import Interference, Rung
from koordlet.response.settings import ResponseSettings


def next_rung(
    observation: Observation,
    interference: Interference,
    settings: ResponseSettings,
    *,
    max_strength: Strength,
    is_barred: Callable[[str], bool],
    may_limit: bool,
) -> tuple[Rung, tuple[Intent, ...]] | None:
    """Return the mildest rung that may be tried and has something to set, with what it sets; None without one.

    Without `may_limit` none that takes from the culprit what no other work may want.
    """
    for rung in LADDERS[interference.resource]:
        if is_barred(rung.name) or rung.strength > max_strength:
            continue
        if rung.limits and not may_limit:
            return None  # what follows costs more still
        if rung.knob is not None and rung.knob not in observation.capabilities.knobs:
            continue
        intents = rung.build(observation, interference, settings)
        if intents:
            return rung, intents
    return None


def begin(
    rung: Rung,
    intents: tuple[Intent, ...],
    observation: Observation,
    interference: Interference,
    settings: ResponseSettings,
    history: History,
    *,
    felt: Sequence[Interference],
    wanted: float,
    is_trip: bool,
) -> AppliedRung:
    """Return a rung on trial, with the state of its victims before it.

    `felt` is what other victims feel of the culprit too, `wanted` what the culprit wants. Of a trip only the worst
    state is known, since a peak of milliseconds is no measure.
    """
    victim, ticks = interference.victim, settings.verify_ticks
    if interference.resource == "blockio":
        interference = replace(interference, disks=observation.disks_between(interference.culprit, victim))
    pair = interference.pair
    applied = AppliedRung(
        rung,
        interference,
        intents,
        observation.now_seconds,
        {},
        {victim: history.worst_state(pair)},
        math.nan if is_trip else history.turnaround_seconds(victim, ticks),
        wanted,
    )
    if is_trip:
        applied.before[victim] = math.nan
        applied.worst_before[victim] = replace(history.worst_state(pair), lost=math.nan)
    else:
        for each in [interference, *felt]:
            applied.before[each.victim] = judgement.claim(applied, each.victim, history, settings)
            applied.worst_before[each.victim] = history.worst_state(each.pair)
            applied.ticks_before[each.victim] = history.ticks(each.pair, ticks)
    if rung.steering is not None:
        applied.limit_state = start_limit(observation, interference, settings, rung.steering)
        applied.floor = rung.steering.floor(observation, interference, settings)
        applied.used_before = rung.steering.used(observation, interference)
    applied.bystanders = find_bystanders(observation, applied, history, settings)
    applied.members = busy_members(observation, interference.culprit)
    applied.victims_wanted_seconds = observation.now_seconds
    return applied
