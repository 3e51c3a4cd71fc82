"""Faults of the trial: which, how long, on which process."""

import math
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from bench.ha.proxy import Fault
from bench.ha.replica import Replica

LATE_SECONDS = 30.0
"""Delay of what watches say while they are late."""
CALM_SECONDS = (4.0, 16.0)


class Kind(StrEnum):
    """A fault that lasts a while."""

    KILL_LEADER = "kill leader"
    KILL_STANDBY = "kill standby"
    KILL_BOTH = "kill both"
    PAUSE_LEADER = "pause leader"
    CUT_LEADER = "cut leader"
    DEAF_LEADER = "deaf leader"
    CUT_STANDBY = "cut standby"
    OUTAGE_HANGING = "outage, hanging"
    OUTAGE_REFUSED = "outage, refused"
    OUTAGE_ERRORS = "outage, 503"
    LATE_WATCHES = "late watches"


_CONNECTION = {
    Kind.CUT_LEADER: Fault.CUT,
    Kind.DEAF_LEADER: Fault.DEAF,
    Kind.CUT_STANDBY: Fault.CUT,
    Kind.OUTAGE_HANGING: Fault.CUT,
    Kind.OUTAGE_REFUSED: Fault.REFUSED,
    Kind.OUTAGE_ERRORS: Fault.ERRORS,
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault, its length, and the calm after it."""

    kind: Kind
    seconds: float
    calm_seconds: float


def plan(draw: Random, longest_seconds: float) -> Planned:
    """Draw the next fault; lengths are even on a logarithmic scale, from a second on."""
    kind = draw.choice(list(Kind))
    seconds = math.exp(draw.uniform(0.0, math.log(longest_seconds)))
    if kind is Kind.LATE_WATCHES:
        seconds = 1.5 * LATE_SECONDS
    return Planned(kind, seconds, draw.uniform(*CALM_SECONDS))


def hit(kind: Kind, leader: Replica, standby: Replica) -> list[Replica]:
    """Begin a fault; return the name of what it hits."""
    hits = {"leader": [leader], "standby": [standby]}.get(kind.split()[-1], [leader, standby])
    for replica in hits:
        if kind in _CONNECTION:
            replica.proxy.set_fault(_CONNECTION[kind])
        elif kind is Kind.LATE_WATCHES:
            replica.proxy.delay_watches(LATE_SECONDS)
        elif kind is Kind.PAUSE_LEADER:
            replica.pause()
        else:
            replica.kill()
    return hits


def heal(kind: Kind, hits: list[Replica]) -> None:
    """End a fault."""
    for replica in hits:
        if kind in _CONNECTION:
            replica.proxy.set_fault(Fault.NONE)
        elif kind is Kind.LATE_WATCHES:
            replica.proxy.delay_watches(0.0)
        elif kind is Kind.PAUSE_LEADER:
            replica.resume()
        else:
            replica.start()
