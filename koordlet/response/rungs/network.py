"""Rungs for the network."""

from api.intents import Intent, Knob, Strength
from koordlet.response.observation import Observation
from koordlet.response.rungs.eviction import EVICT
from koordlet.response.rungs.rung import Interference, Rung, setting
from koordlet.response.settings import ResponseSettings

_LOW_TRAFFIC = "rate=131072 prio=7"
"""A guaranteed megabit per second, the rest with the lowest priority."""


def _traffic_class(
    _observation: Observation, interference: Interference, settings: ResponseSettings
) -> tuple[Intent, ...]:
    return (
        setting(interference, settings, Strength.MILD, Knob.NET_CLASS, at=interference.culprit, value=_LOW_TRAFFIC),
    )


RUNGS = (Rung("class", Strength.MILD, Knob.NET_CLASS, _traffic_class), EVICT)
