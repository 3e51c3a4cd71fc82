"""Limits that follow a victim's loss: what it may lose, and the first limit. They have floors: zero never means
unlimited, and no culprit is starved."""

from collections.abc import Iterable

from api.intents import Intent
from koordlet.response.limit_control import LimitState, first_limit
from koordlet.response.observation import Observation
from koordlet.response.rungs.rung import Build, Interference, Steering
from koordlet.response.settings import ResponseSettings


def start_limit(
    observation: Observation, interference: Interference, settings: ResponseSettings, steering: Steering
) -> LimitState | None:
    """Return the first limit on a culprit; None where it uses too little to be limited."""
    ceiling = steering.ceiling(observation, interference)
    floor = steering.floor(observation, interference, settings)
    if ceiling <= floor:
        return None
    over = loss_over_budget(observation, [interference], settings)
    return first_limit(ceiling, over, floor, steering.deepest_cut)


def steered(steering: Steering) -> Build:
    """Return what sets the first limit of a rung."""

    def build(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        first = start_limit(observation, interference, settings, steering)
        return () if first is None else steering.set_limit(observation, interference, settings, first.limit)

    return build


def loss_over_budget(
    observation: Observation, interferences: Iterable[Interference], settings: ResponseSettings
) -> float:
    """Return the worst victim's claim over its budget.

    On disks the budget is a share of the time that its IO takes undisturbed, and the claim is on those that disturb it;
    where that time is not measured the budget is the general one, and it is never less than a tenth of that.
    """
    worst = 0.0
    for each in interferences:
        if each.resource != "blockio":
            may = loss_budget(observation, each.victim, each.resource, settings)
            claim = observation.claim_on(each.victim, each.culprit, each.resource, of_limits=True)
            worst = max(worst, claim / may)
            continue
        may, served = settings.loss_budget_seconds_per_second, observation.io_seconds(each.victim)
        if served == served:
            may = max(served * settings.io_slowdown, may / 10)
        worst = max(worst, observation.claim(each.victim, "blockio") / may)
    return worst


def loss_budget(observation: Observation, victim: str, resource: str, settings: ResponseSettings) -> float:
    """Return what a victim may lose, in seconds per second: of CPU time a share of its progress, at least a little."""
    row = observation.rows.get(victim)
    progress = observation.used_by(victim) if row is not None and resource == "cpu" else 0.0
    return max(settings.loss_budget_seconds_per_second, settings.loss_budget_ratio * progress)
