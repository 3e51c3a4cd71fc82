"""Pages read again that reclaim under a memory limit further up took, whichever cgroup below it reclaimed."""

from typing import ClassVar

import numpy as np

from detector.memory_limits import ABOVE, BY_HELD, LIMIT, OWN, REFAULTS, TAKEN, USED, refault_costs
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View

LEAST = 0.2
"""Seconds per second from which the estimate counts, as in the rule of refaults that are the node's."""


class AncestorLimitRefault(Symptom):
    """An estimate from a count beside the stalls that `ancestor_memory_limit` measures.

    A cgroup whose neighbour below the limit does all the reclaim stalls in none, and yet loses its pages.
    """

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "ancestor_limit"
    columns: ClassVar[tuple[str, ...]] = (REFAULTS, OWN, ABOVE, LIMIT, TAKEN, USED)
    blame: ClassVar[BlameSource] = BY_HELD

    def sense(self, view: View) -> Signal | None:
        """A tenth of a millisecond for each page while any cgroup reclaims under a limit that they share."""
        costs = view.once(refault_costs)
        if costs is None:
            return None
        cost = np.where(costs.by_ancestors >= LEAST, costs.by_ancestors, 0.0)
        return Signal(np.where(view.tree.leaves, cost, np.nan), measured=False)
