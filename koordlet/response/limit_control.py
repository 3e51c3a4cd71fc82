"""A limit that looks for the most a culprit may use while its victim loses no more than it may.

It is cut by as much as the victim loses too much, and given back in ever smaller steps towards the last limit that
hurt, which is itself forgotten slowly: so the limit stays near the edge and finds out when the edge has moved. Steps
are ratios, because losses on a disk differ by orders of magnitude.
"""

import math
from dataclasses import dataclass, replace

_DEEPEST_CUT, _LEAST_CUT = 0.1, 0.8
"""A limit becomes at least and at most this part of itself in one step."""
_CALM = 0.5
"""Below this part of what is tolerated the limit grows; between the two it stays, unless it is to be let go."""
_PRESSES = 0.5
"""A culprit that uses less than this part of its limit is not held back by it, so a lower one would not help."""
_NEAR = 0.9
_EDGE_GROWTH = 1.05
"""For each calm tick."""
_LEAST_GROWTH = 1.05
"""Smaller steps are saved up: each costs a write."""


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit under way, in the unit of what is limited for each second."""

    limit: float
    ceiling: float
    """What the culprit used without it; no limit is higher."""
    edge: float
    """Where it is thought to begin to hurt."""
    lowered: bool = False
    """Whether the last step lowered it, or would have if it were not the lowest."""
    releasing: bool = False
    """On the way to no limit at all, as long as nothing hurts."""


def loosen(limit_state: LimitState) -> LimitState:
    """Forget where it hurt: the limit is given back in a few steps."""
    return replace(limit_state, edge=limit_state.ceiling, releasing=True)


def first_limit(used: float, loss_over_budget: float, floor: float) -> LimitState:
    """The first limit on a culprit that uses so much, which must be above the floor."""
    return next_limit(LimitState(used, used, used), loss_over_budget=loss_over_budget, used=used, floor=floor)


def next_limit(limit_state: LimitState, *, loss_over_budget: float, used: float, floor: float) -> LimitState:
    """One tick. `strain` is what the victim lost in it, by what it may lose; `used` what the culprit used in it."""
    presses = used >= limit_state.limit * _PRESSES
    if loss_over_budget > 1 and presses:
        part = min(max(1 / loss_over_budget, _DEEPEST_CUT), _LEAST_CUT)
        return LimitState(
            max(limit_state.limit * part, min(floor, limit_state.limit)),
            limit_state.ceiling,
            limit_state.limit,
            lowered=True,
        )
    grows = loss_over_budget <= _CALM or (loss_over_budget <= 1 and (limit_state.releasing or not presses))
    if not grows:
        return replace(limit_state, lowered=False)
    edge = min(limit_state.edge * _EDGE_GROWTH, limit_state.ceiling)
    goal = limit_state.ceiling if edge >= limit_state.ceiling else edge * _NEAR
    limit = math.sqrt(limit_state.limit * max(goal, limit_state.limit))
    if limit < limit_state.limit * _LEAST_GROWTH:
        limit = goal if goal >= limit_state.ceiling else limit_state.limit
    return replace(limit_state, limit=limit, edge=edge, lowered=False)
