"""Pages read again soon after reclaim took them: the working set does not fit beside those of others."""

from typing import ClassVar

import numpy as np

from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View

SECONDS_PER_PAGE = 1e-4
"""What reading a page again costs at least: a read of a solid-state disk."""
LIMITED = 0.01
"""Seconds per second in reclaim under a limit from which refaults are that limit's doing."""


class Refault(Symptom):
    """An estimate from a count, so never a confident one. Refaults under a limit, own or above, are not the node's.

    Culprits are those that took pages while the node was short, as for reclaim.
    """

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "refault"
    columns: ClassVar[tuple[str, ...]] = (
        "memstat.refaults",
        "memory.stall_own_limit_ns",
        "memory.stall_ancestor_limit_ns",
        "memory.pressure_pages",
    )
    blame: ClassVar[BlameSource] = BlameSource(suspects="memory.pressure_pages")
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.2, qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """A tenth of a millisecond for each page, at most a second a second; only where a probe sees limits."""
        pages = view.total("memstat.refaults")
        limited = view.total("memory.stall_own_limit_ns", "memory.stall_ancestor_limit_ns")
        if pages is None or limited is None:
            return None
        lost = np.where(np.nan_to_num(limited) < LIMITED, np.minimum(pages * SECONDS_PER_PAGE, 1.0), 0.0)
        return Signal(np.where(view.tree.leaves, lost, np.nan), measured=False)
