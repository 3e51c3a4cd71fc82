"""Stalls on memory that no reclaim explains: pages read back from swap or disk, or a thread held back for its usage."""

from typing import ClassVar

import numpy as np

from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import Signal, Symptom
from detector.view import View

SEEN = (
    "memory.stall_global_ns",
    "memory.stall_own_limit_ns",
    "memory.stall_ancestor_limit_ns",
    "memory.stall_compaction_ns",
)
"""Time in reclaim and compaction, that under way included."""


class UnexplainedMemory(Symptom):
    """Pressure stall information less what the memory probe sees: thrashing, and the brake of `memory.high`.

    Only where both measure; names no culprit. Pressure of a parent is its children's, so only leaves are judged.
    """

    resource: ClassVar[str] = "pressure"
    cause: ClassVar[str] = "memory"
    columns: ClassVar[tuple[str, ...]] = ("pressure.memory_some_us", *SEEN)
    default_rule: ClassVar[Rule | None] = Rule(
        threshold=0.3, qos_thresholds=BEST_EFFORT_THRESHOLDS, ticks=3, of_ticks=3
    )

    def sense(self, view: View) -> Signal | None:
        """Seconds in which some thread stalled, less those in reclaim; a remainder, so never a confident one."""
        seen = view.total(*SEEN)
        if seen is None or not view.has("pressure.memory_some_us"):
            return None
        stalled = np.minimum(view.rate("pressure.memory_some_us"), 1.0)
        lost = np.maximum(stalled - np.nan_to_num(seen), 0.0)
        return Signal(np.where(view.tree.leaves, lost, np.nan), measured=False)
