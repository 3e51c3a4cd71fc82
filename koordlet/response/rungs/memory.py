"""Rungs for memory."""

from api.intents import Intent, Knob, Reclaim, Strength
from koordlet.response.observation import Observation
from koordlet.response.rungs.eviction import EVICT
from koordlet.response.rungs.rung import STRATEGY, Interference, Rung, setting
from koordlet.response.settings import ResponseSettings


def _reclaim(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    row = observation.rows.get(interference.culprit)
    used = float(observation.memory_bytes[row]) if row is not None else 0.0
    if not used > 0:
        return ()
    taken = Reclaim(
        strategy=STRATEGY,
        target=interference.culprit,
        reason=interference.reason,
        verdict=interference.verdict,
        strength=Strength.MILD,
        amount_bytes=int(used * settings.reclaim_ratio),
    )
    return (taken,)


def _memory_high(
    observation: Observation, interference: Interference, settings: ResponseSettings
) -> tuple[Intent, ...]:
    row = observation.rows.get(interference.culprit)
    used = float(observation.memory_bytes[row]) if row is not None else 0.0
    if not used > 0:
        return ()
    page = 4096
    text = str(max(int(used * 0.9) // page * page, page))
    return (setting(interference, settings, Strength.HARD, Knob.MEMORY_HIGH, at=interference.culprit, value=text),)


RUNGS = (
    Rung("reclaim", Strength.MILD, None, _reclaim, one_shot=True),
    Rung("high", Strength.HARD, Knob.MEMORY_HIGH, _memory_high, outlasts_lift=True),
    EVICT,
)
