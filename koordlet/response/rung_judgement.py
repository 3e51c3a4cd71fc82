"""Judgement of an applied rung by its victims' claims: against the ticks before it, and against those of a lift."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from koordlet.response.applied_rung import AppliedRung
from koordlet.response.history import History, Pair
from koordlet.response.observation import Observation
from koordlet.response.rungs.limits import loss_budget
from koordlet.response.rungs.rung import Interference
from koordlet.response.settings import ResponseSettings
from koordlet.response.trial import Judgement, judge

_RISE_RATIO = 2.0
"""Ratio of the later half of some ticks to the earlier one from which on a loss has just begun."""


def claim(applied: AppliedRung, victim: str, history: History, settings: ResponseSettings) -> float:
    """Return the mean loss over a trial that a rung is judged by: to quotas on its victim and above, or to culprits."""
    if applied.rung.relieves_victim:
        return history.throttled(victim, settings.verify_ticks)
    return history.lost(_pair(applied, victim), settings.verify_ticks)


def is_calm(observation: Observation, applied: AppliedRung, history: History, settings: ResponseSettings) -> bool:
    """Return whether some victim loses no more than its budget, that did before as far as is known."""
    calm = [
        claim(applied, victim, history, settings) <= _budget(observation, applied, victim, settings)
        for victim in applied.before
    ]
    lost_before = [
        not before <= _budget(observation, applied, victim, settings) for victim, before in applied.before.items()
    ]
    return all(calm) or any(is_so and was for is_so, was in zip(calm, lost_before, strict=True))


def is_grave(
    observation: Observation,
    interference: Interference,
    history: History,
    settings: ResponseSettings,
    *,
    ticks: int | None = None,
    yields: bool = False,
) -> bool:
    """Return whether a loss is worth a limit, which takes what no other work may want: in the mean of the last ticks,
    by default those of a trial, and in this one it is large.

    Of CPU time that is above its budget by a factor, by what the victim is entitled to at the weights as they are. Of
    block IO any loss is, unless a rung stands by which the culprit `yields`: then what remains is the time that the
    disk takes for what it has begun, and a limit needs a loss above that of one IO of the culprit's for each of the
    victim's, or of the victim's own, by that factor.
    """
    victim, resource = interference.victim, interference.resource
    if resource == "cpu":
        unit = loss_budget(observation, victim, "cpu", settings)
    elif resource == "blockio" and yields:
        behind_one = observation.io_seconds_behind_one(victim, interference.culprit)
        unit = float(np.fmax(observation.io_seconds(victim), behind_one))
    else:
        return True
    lately = history.lost(interference.pair, ticks or settings.verify_ticks)
    now = observation.claim_on(victim, interference.culprit, resource, of_limits=True)
    return not min(lately, now) <= settings.limit_budget_factor * unit  # an unknown time is no reason to wait


def judge_by_before(
    observation: Observation, applied: AppliedRung, history: History, settings: ResponseSettings
) -> Judgement:
    """Judge a rung that no lift can judge by what the victims lost on the average before."""
    ticks = settings.verify_ticks
    found = [
        _compare(
            observation,
            applied,
            victim,
            [claim(applied, victim, history, settings)] * ticks,
            [before] * ticks,
            settings,
        )
        for victim, before in applied.before.items()
    ]
    return Judgement.HELPS if Judgement.HELPS in found else Judgement.USELESS


def compare_with_before(
    observation: Observation, applied: AppliedRung, settings: ResponseSettings
) -> dict[str, Judgement | None]:
    """Compare the ticks of a trial with those before it, by victim; None where these are too few to tell a loss that
    fell from one that comes and goes, or to say that it did not fall because it had just begun."""
    found: dict[str, Judgement | None] = {}
    for victim, before in applied.ticks_before.items():
        with_rung = list(applied.on_ticks.get(victim, ()))
        if not before or not with_rung:
            continue
        verdict = _compare(observation, applied, victim, with_rung, before, settings)
        improved = fmean(with_rung) <= fmean(before) * (1 - settings.min_improvement_ratio)
        found[victim] = None if verdict is Judgement.USELESS and (improved or _has_just_begun(before)) else verdict
    return found


def _has_just_begun(losses: Sequence[float]) -> bool:
    """Return whether a loss rose over these ticks; one that comes and goes does not, however much it swings."""
    half = len(losses) // 2
    return half > 0 and fmean(losses[half:]) > _RISE_RATIO * fmean(losses[:half])


def judge_lift(
    observation: Observation, applied: AppliedRung, history: History, settings: ResponseSettings
) -> dict[str, Judgement]:
    """Judge a rung by its lift, by victim; what the victims lost in it becomes what they lose without the rung."""
    judgements = {}
    for victim, ticks in applied.on_ticks.items():
        without = history.ticks(_pair(applied, victim), applied.lifted_for)
        applied.before[victim] = fmean(without)
        with_rung = list(ticks)[-applied.compared :]
        judgements[victim] = _compare(observation, applied, victim, with_rung, without, settings)
    return judgements


def _compare(
    observation: Observation,
    applied: AppliedRung,
    victim: str,
    with_rung: Sequence[float],
    without: Sequence[float],
    settings: ResponseSettings,
) -> Judgement:
    budget = _budget(observation, applied, victim, settings)
    return judge(with_rung, without, budget=budget, min_improvement_ratio=settings.min_improvement_ratio)


def _budget(observation: Observation, applied: AppliedRung, victim: str, settings: ResponseSettings) -> float:
    return loss_budget(observation, victim, applied.interference.resource, settings)


def _pair(applied: AppliedRung, victim: str) -> Pair:
    return Pair(applied.interference.culprit, victim, applied.interference.resource)
