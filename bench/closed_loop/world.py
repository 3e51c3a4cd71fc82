"""Services and batch work that every set of rules meets alike, and the harm that one does to the other.

Harm is linear in pressure: a service loses `sensitivity x sum(strength x share of the node's CPUs)` seconds a second
of its busy time. The figures are fitted to bench.protect (docs/protecting.md, two services beside compressing work that
takes the 70 % of the machine that the service leaves): medians grow from 11.9 to 20.8 ms and from 2.1 to 2.6 ms, so 43
and 19 % of the time is lost at a pressure of 0.7. With protection nothing is lost and the work loses 7 and 19 %.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CORES = 32
SERVICES = 24
"""Workloads of services."""
BATCHES = 8
"""Workloads of batch work."""
BATCH_CORES = 4
BATCH_HOURS = 8.0
"""Mean time that a batch pod takes on CPUs of its own."""
SENSITIVITY = (0.43 + 0.19) / 2 / 0.7
"""Mean lost seconds a second at a pressure of one."""
WORK_COST = 0.13 / 0.31
"""Part of the culprits' work that protection costs, for each lost second a second that it ends."""
RESIDUAL = 0.05
"""What protection leaves: the budget of a claim, as a part of the victim's busy time."""
RECALL = 0.95
"""Part of the harm that is found and ended."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class World:
    """Pods of services with their workloads, shapes (pods,); and traits by workload."""

    workload: NDArray[np.int64]
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
