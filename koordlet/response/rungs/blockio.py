"""Rungs for block IO."""

from api.intents import Intent, Knob, Strength
from koordlet.response.observation import Observation
from koordlet.response.rungs.eviction import EVICT
from koordlet.response.rungs.limits import steered
from koordlet.response.rungs.rung import Interference, Rung, Steering, setting, weight_target
from koordlet.response.settings import ResponseSettings


def _io_weight(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    """Lower the IO weight; nothing where no disk between the two honours weights: a trial would only keep the victim
    waiting."""
    weighing, disks = (
        observation.capabilities.weighing_disks,
        observation.disks_between(interference.culprit, interference.victim),
    )
    if weighing is not None and weighing.isdisjoint(disks):
        return ()
    target = weight_target(observation, interference, settings)
    if not target:
        return ()
    return (setting(interference, settings, Strength.INVISIBLE, Knob.IO_WEIGHT, at=target, value="default 1"),)


def _io_limit(
    observation: Observation, interference: Interference, settings: ResponseSettings, bytes_per_second: float
) -> tuple[Intent, ...]:
    """Limit reads and writes to this rate each, on each disk that both used."""
    limit = max(int(bytes_per_second), settings.io_floor_bytes_per_second)
    disks = interference.disks or observation.disks_between(interference.culprit, interference.victim)
    if not disks:
        return ()
    text = "\n".join(f"{disk} rbps={limit} wbps={limit}" for disk in disks)
    return (setting(interference, settings, Strength.HARD, Knob.IO_MAX, at=interference.culprit, value=text),)


def _bytes_moved(observation: Observation, interference: Interference) -> float:
    row = observation.rows.get(interference.culprit)
    return float(observation.io_bytes_per_second[row]) if row is not None else 0.0


def _fewest_bytes(_observation: Observation, _interference: Interference, settings: ResponseSettings) -> float:
    return float(settings.io_floor_bytes_per_second)


_IO_MAX = Steering(
    _bytes_moved, _fewest_bytes, _bytes_moved, _io_limit, edge_growth=1.05, deepest_cut=0.1, searches_ceiling=True
)

RUNGS = (
    Rung("weight", Strength.INVISIBLE, Knob.IO_WEIGHT, _io_weight, yields=True),
    Rung("limit", Strength.HARD, Knob.IO_MAX, steered(_IO_MAX), steering=_IO_MAX),
    EVICT,
)
