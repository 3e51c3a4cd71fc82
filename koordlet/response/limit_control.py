"""Limit control: find the most that a culprit may use while its victim stays within its loss budget.

The limit is lowered by the factor by which the victim exceeds its budget, and raised in ever smaller steps towards the
last limit that hurt. That edge is itself forgotten slowly, so the limit stays near it and finds out when it has moved.
Steps are ratios, because losses on a disk differ by orders of magnitude.
"""

import math
from dataclasses import dataclass, replace

DEEPEST_CUT, _LEAST_CUT = 0.1, 0.8
"""Factors between which one step lowers a limit, unless a limit has its own."""
_CALM = 0.5
"""Loss over budget below which the limit is raised; between this and 1 it stays, unless it is being released."""
_PRESSES = 0.5
"""Use over limit below which the limit does not hold the culprit back."""
_NEAR = 0.9
EDGE_GROWTH = 1.05
"""Growth of the edge in each tick without excess loss, unless a limit has its own."""
_LEAST_GROWTH = 1.05
"""Growth below which a step is saved up: each step costs a write."""


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit and its history, in units per second of what is limited."""

    limit: float
    ceiling: float
    """Use of the culprit without a limit; no limit is higher."""
    edge: float
    """Limit at which the victim is expected to exceed its budget."""
    lowered: bool = False
    """Whether the last step lowered it, or would have but for the floor."""
    releasing: bool = False
    """Whether it is being raised until it can be removed, as long as the victim stays within its budget."""


def loosen(limit_state: LimitState) -> LimitState:
    """Forget the edge, so that the limit is raised to the ceiling in a few steps."""
    return replace(limit_state, edge=limit_state.ceiling, releasing=True)


def first_limit(used: float, loss_over_budget: float, floor: float, deepest_cut: float = DEEPEST_CUT) -> LimitState:
    """Return the first limit on a culprit with this use, which must be above the floor."""
    start = LimitState(used, used, used)
    return next_limit(start, loss_over_budget=loss_over_budget, used=used, floor=floor, deepest_cut=deepest_cut)


def presses(limit_state: LimitState, used: float) -> bool:
    """Return whether a culprit with this use is held back by the limit, so that a lower one would do something."""
    return used >= limit_state.limit * _PRESSES


def next_limit(
    limit_state: LimitState,
    *,
    loss_over_budget: float,
    used: float,
    floor: float,
    edge_growth: float = EDGE_GROWTH,
    searches_ceiling: bool = True,
    deepest_cut: float = DEEPEST_CUT,
) -> LimitState:
    """Return the limit after one tick; `loss_over_budget` and `used` are the victim's and the culprit's in that tick.

    Without `searches_ceiling` the limit reaches its ceiling only when it is released.
    """
    is_pressed = presses(limit_state, used)
    if loss_over_budget > 1 and is_pressed:
        part = min(max(1 / loss_over_budget, deepest_cut), _LEAST_CUT)
        return LimitState(
            max(limit_state.limit * part, min(floor, limit_state.limit)),
            limit_state.ceiling,
            limit_state.limit,
            lowered=True,
        )
    grows = loss_over_budget <= _CALM or (loss_over_budget <= 1 and (limit_state.releasing or not is_pressed))
    if not grows:
        return replace(limit_state, lowered=False)
    edge = min(limit_state.edge * edge_growth, limit_state.ceiling)
    reaches = edge >= limit_state.ceiling and (searches_ceiling or limit_state.releasing)
    goal = limit_state.ceiling if reaches else edge * _NEAR
    limit = math.sqrt(limit_state.limit * max(goal, limit_state.limit))
    if limit < limit_state.limit * _LEAST_GROWTH:
        limit = goal if goal >= limit_state.ceiling else limit_state.limit
    return replace(limit_state, limit=limit, edge=edge, lowered=False)
