"""Steering of an episode's limits: they follow the losses of the victims that feel them, and are loosened last."""

from collections.abc import Sequence

from api.intents import Strength
from koordlet.response.applied_rung import AppliedRung, Phase
from koordlet.response.limit_control import loosen, next_limit, presses
from koordlet.response.observation import Observation
from koordlet.response.rungs.limits import loss_over_budget
from koordlet.response.rungs.rung import Interference
from koordlet.response.settings import ResponseSettings

Answer = tuple[Interference, Strength]
"""An interference with the strongest rung allowed for it."""


def adjust(
    applied: AppliedRung, observation: Observation, answers: Sequence[Answer], settings: ResponseSettings
) -> bool:
    """Move a limit with its victims' losses; return whether it was lowered. During its trial it is not raised.

    A victim counts that feels its loss and for which a rung of this strength may be applied. The one that the limit was
    applied for counts without a verdict, too, unless today's verdict says that it does not feel it.
    """
    steering, state = applied.rung.steering, applied.limit_state
    if state is None or steering is None or applied.lifted:
        return False
    concerned = [each for each, most in answers if each.felt and most >= applied.rung.strength]
    if applied.interference.victim not in {each.victim for each, _most in answers}:
        concerned.append(applied.interference)
    found = next_limit(
        state,
        loss_over_budget=loss_over_budget(observation, concerned, settings),
        used=steering.used(observation, applied.interference),
        floor=applied.floor,
        edge_growth=steering.edge_growth,
        searches_ceiling=steering.searches_ceiling,
        deepest_cut=steering.deepest_cut,
    )
    if applied.phase is Phase.TRIAL and found.limit > state.limit:
        found = state
    applied.limit_state = found
    if found.limit != state.limit:
        applied.intents = steering.set_limit(observation, applied.interference, settings, found.limit)
    return found.lowered


def searches(applied: AppliedRung) -> bool:
    """Return whether a limit was lowered in the newest tick and can be lowered further."""
    state = applied.limit_state
    return state is not None and state.lowered and state.limit > applied.floor


def can_fall(applied: AppliedRung, observation: Observation) -> bool:
    """Return whether the next tick can lower a limit: it is above its floor, and the culprit uses it up."""
    steering, state = applied.rung.steering, applied.limit_state
    if state is None or steering is None or state.limit <= applied.floor:
        return False
    return presses(state, steering.used(observation, applied.interference))


def loosens(applied: AppliedRung) -> bool:
    """Return whether a limit is loosened step by step before it is taken back, which shows what a lift would."""
    return applied.rung.steering is not None and applied.rung.steering.searches_ceiling


def loosened(applied: AppliedRung) -> bool:
    """Loosen a limit; return False where it is at its ceiling and can be taken back."""
    if applied.limit_state is None or applied.limit_state.limit >= applied.limit_state.ceiling:
        return False
    applied.limit_state = loosen(applied.limit_state)
    return True


def taken_cores(applied: AppliedRung) -> float:
    """Return the CPU time that a limit takes from its culprit."""
    state = applied.limit_state
    return 0.0 if state is None else max(applied.used_before - state.limit, 0.0)
