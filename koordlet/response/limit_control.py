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
    most: float
    """What the culprit used without it; no limit is higher."""
    edge: float
    """Where it is thought to begin to hurt."""
    cut: bool = False
    """Whether the last step lowered it, or would have if it were not the lowest."""
    letting_go: bool = False
    """On the way to no limit at all, as long as nothing hurts."""


def let_go(course: LimitState) -> LimitState:
    """Forget where it hurt: the limit is given back in a few steps."""
    return replace(course, edge=course.most, letting_go=True)


def begun(used: float, strain: float, floor: float) -> LimitState:
    """The first limit on a culprit that uses so much, which must be above the floor."""
    return steered(LimitState(used, used, used), strain=strain, used=used, floor=floor)


def steered(course: LimitState, *, strain: float, used: float, floor: float) -> LimitState:
    """One tick. `strain` is what the victim lost in it, by what it may lose; `used` what the culprit used in it."""
    presses = used >= course.limit * _PRESSES
    if strain > 1 and presses:
        part = min(max(1 / strain, _DEEPEST_CUT), _LEAST_CUT)
        return LimitState(max(course.limit * part, min(floor, course.limit)), course.most, course.limit, cut=True)
    grows = strain <= _CALM or (strain <= 1 and (course.letting_go or not presses))
    if not grows:
        return replace(course, cut=False)
    edge = min(course.edge * _EDGE_GROWTH, course.most)
    goal = course.most if edge >= course.most else edge * _NEAR
    limit = math.sqrt(course.limit * max(goal, course.limit))
    if limit < course.limit * _LEAST_GROWTH:
        limit = goal if goal >= course.most else course.limit
    return replace(course, limit=limit, edge=edge, cut=False)
