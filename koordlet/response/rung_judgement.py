"""Judgement of an applied rung by its victims' claims: against the ticks before it, and against those of a lift."""

from collections.abc import Sequence
from statistics import fmean

from koordlet.response.applied_rung import AppliedRung
from koordlet.response.history import History, Pair
from koordlet.response.observation import Observation
from koordlet.response.rungs.limits import loss_budget
from koordlet.response.rungs.rung import Interference
from koordlet.response.settings import ResponseSettings
from koordlet.response.trial import Judgement, judge


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
) -> bool:
    """Return whether a loss is worth a limit, which takes CPU time although CPUs are free: in the mean of the last
    ticks, by default those of a trial, and in this one it is above its budget by a factor, by what the victim is
    entitled to at the weights as they are."""
    if interference.resource != "cpu":
        return True
    least = settings.limit_budget_factor * loss_budget(observation, interference.victim, "cpu", settings)
    lately = history.lost(interference.pair, ticks or settings.verify_ticks)
    now = observation.claim_on(interference.victim, interference.culprit, "cpu", of_limits=True)
    return min(lately, now) > least


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
    fell from one that comes and goes."""
    found: dict[str, Judgement | None] = {}
    for victim, before in applied.ticks_before.items():
        with_rung = list(applied.on_ticks.get(victim, ()))
        if not before or not with_rung:
            continue
        verdict = _compare(observation, applied, victim, with_rung, before, settings)
        improved = fmean(with_rung) <= fmean(before) * (1 - settings.min_improvement_ratio)
        found[victim] = None if verdict is Judgement.USELESS and improved else verdict
    return found


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
