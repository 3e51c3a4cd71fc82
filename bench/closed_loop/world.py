"""Services and batch work that every set of rules meets alike, and the harm that one does to the other.

Harm is linear in pressure: a service loses `sensitivity x sum(strength x share of the node's CPUs)` seconds a second
of its busy time. The mean is fitted to bench.protect (docs/protecting.md), to four services beside compressing work
that takes the 70 % of the machine that the service leaves: what is lost is the part by which the 99th percentile of
answers grows, 1 - alone / beside. What protection ends of it and what that costs the work are of the same runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CORES = 32
MEMORY = 128 << 30
SERVICES = 24
"""Workloads of services."""
BATCHES = 8
"""Workloads of batch work."""
BATCH_CORES = 4
BATCH_HOURS = 8.0
"""Mean time that a batch pod takes on CPUs of its own."""
PRESSURE = 0.7
"""Share of the CPUs that the batch work of the measured runs took."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One service of bench.protect: 99th percentiles in ms, and the work left beside a protected service."""

    alone: float
    unprotected: float
    protected: float
    work: float
    lowest_weight: float
    """Of work with the lowest weight for good, or of the idle class where that was measured; without any agent."""

    def lost(self, beside: float) -> float:
        """Return the part of a request's time that a neighbour costs it."""
        return max(1 - self.alone / beside, 0.0)


MEASURED = (
    Measured(25.1, 72.1, 22.8, 0.93, 23.0),
    Measured(5.4, 10.2, 4.1, 0.81, 3.5),
    Measured(7.9, 11.4, 8.2, 0.98, 9.5),
    Measured(0.72, 1.51, 1.11, 0.99, 1.21),
)
"""Requests of 10 and of 1 ms, nginx, postgres."""


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


HARM = _mean(each.lost(each.unprotected) for each in MEASURED)
SENSITIVITY = HARM / PRESSURE
"""Mean lost seconds a second at a pressure of one: 0.70."""
LEFT = _mean(each.lost(each.protected) for each in MEASURED)
RESIDUAL = 0.05
"""What protection does not answer: the budget of a claim, as a part of the victim's busy time."""
ENDED = (HARM - LEFT) / (HARM - RESIDUAL)
"""Part of the harm beyond the budget that protection ends: 0.89. bench.detect found each harm on its CPUs."""
WORK_COST = _mean(1 - each.work for each in MEASURED) / (HARM - LEFT)
"""Part of the culprits' work that protection costs, for each lost second a second that it ends: 0.19."""
LOST_WEIGHED = _mean(each.lost(each.lowest_weight) for each in MEASURED)
WEIGHED = LOST_WEIGHED / HARM
"""Part of the harm that is left where the kernel has batch work yield for good, with no agent: 0.29."""
ENDED_WEIGHED = (LOST_WEIGHED - LEFT) / (LOST_WEIGHED - RESIDUAL)
"""Part of that beyond the budget that protection ends: 0.50."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class World:
    """Pods of services with their workloads, shapes (pods,); and traits by workload."""

    workload: Ints
    request: Floats
    mean_use: Floats
    swing: Floats
    peak_seconds: Floats
    sensitivity: Floats
    """By workload of a service."""
    strength: Floats
    """By workload of batch work; their mean is one."""

    def use(self, seconds: float, draw: np.random.Generator) -> Floats:
        """Return the cores that each pod of a service uses; a fifth less at weekends."""
        wave = 1 + self.swing * np.cos(2 * np.pi * (seconds - self.peak_seconds) / DAY_SECONDS)
        weekend = 0.8 if int(seconds // DAY_SECONDS) % 7 >= 5 else 1.0
        noise = draw.lognormal(0.0, 0.15, len(self.request))
        return np.minimum(self.mean_use * wave * weekend * noise, self.request)


def world(nodes: int, seed: int, requested: float = 0.7) -> World:
    """Return services whose requests fill a part of the nodes."""
    draw = np.random.default_rng((seed, 1))
    cores = draw.choice([2.0, 4.0, 6.0], SERVICES)
    use = draw.uniform(0.15, 0.55, SERVICES)
    swing, peak = draw.uniform(0.3, 0.8, SERVICES), draw.normal(14 * 3600, 2 * 3600, SERVICES)
    sensitivity = draw.lognormal(0.0, 0.8, SERVICES)
    strength = draw.lognormal(0.0, 0.6, BATCHES)
    count = int(requested * nodes * CORES / cores.mean())
    members = np.arange(count) % SERVICES
    return World(
        members,
        cores[members],
        cores[members] * use[members],
        swing[members],
        peak[members],
        sensitivity / sensitivity.mean() * SENSITIVITY,
        strength / strength.mean(),
    )
