"""Memory on another NUMA node than the CPUs that use it: own placement, no neighbour's doing."""

from typing import ClassVar

import numpy as np

from api.verdicts import OWN_PLACEMENT
from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View

LOST_RATIO = 0.25
"""Part of its CPU time that a program loses whose memory is all remote: a load takes half as long again, and half of
the time is spent on loads."""
LEAST_BYTES = 64 << 20
"""Less is in the caches."""


class RemoteMemory(Symptom):
    """An estimate from where pages are, so never a confident one. Absent on hosts with one node."""

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "own_placement"
    columns: ClassVar[tuple[str, ...]] = (
        "numa.away_bytes",
        "numa.placed_bytes",
        "cpu.oncpu_ns",
        "cpustat.usage_ns",
    )
    blame: ClassVar[BlameSource] = BlameSource(named=OWN_PLACEMENT)
    default_rule: ClassVar[Rule | None] = Rule(
        threshold=0.2, qos_thresholds=BEST_EFFORT_THRESHOLDS, ticks=10, of_ticks=12
    )

    def sense(self, view: View) -> Signal | None:
        """A quarter of the CPU time, for the part of the memory that is away; of leaves alone."""
        column = next((name for name in ("cpu.oncpu_ns", "cpustat.usage_ns") if view.has(name)), None)
        if column is None or not view.has("numa.away_bytes", "numa.placed_bytes"):
            return None
        away, placed = view.rate("numa.away_bytes"), view.rate("numa.placed_bytes")
        part = np.where(away >= LEAST_BYTES, away / np.maximum(placed, 1.0), 0.0)
        lost = np.where(np.isnan(away), np.nan, view.rate(column) * part * LOST_RATIO)
        return Signal(np.where(view.tree.leaves, lost, np.nan), measured=False)
