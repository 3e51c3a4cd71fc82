"""Pages read again soon after reclaim took them: the working set does not fit beside those of others."""

from typing import ClassVar

import numpy as np

from detector.memory_limits import ABOVE, BY_TAKEN, LIMIT, OWN, REFAULTS, TAKEN, USED, part_of_others, refault_costs
from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class Refault(Symptom):
    """An estimate from a count, so never a confident one. Refaults under a limit, own or above, are not the node's.

    Culprits are those that took pages while the node was short, as for reclaim; the part of the cgroup's own pages in
    all that were taken is its own doing and does not count.
    """

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "refault"
    columns: ClassVar[tuple[str, ...]] = (REFAULTS, OWN, ABOVE, LIMIT, TAKEN, USED)
    blame: ClassVar[BlameSource] = BY_TAKEN
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.2, qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """A tenth of a millisecond for each page, at most a second a second; only where a probe sees limits."""
        costs = view.once(refault_costs)
        if costs is None:
            return None
        return Signal(np.where(view.tree.leaves, costs.by_node * part_of_others(view), np.nan), measured=False)
