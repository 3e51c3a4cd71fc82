"""The last values of every cgroup, rows matched by id as cgroups come and go."""

import numpy as np
from numpy.typing import NDArray

from detector.view import Floats


class Ring:
    """At most `length` ticks, oldest first; what a newcomer did before it came is NaN."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._ids: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self.values: Floats = np.empty((0, 0))
        """Shape (ticks, cgroups), columns in the order of the ids pushed last."""

    def push(self, ids: NDArray[np.uint64], values: Floats) -> None:
        """Add a tick."""
        if not np.array_equal(ids, self._ids):
            self.values = self._rearranged(ids)
            self._ids = ids
        self.values = np.vstack([self.values[-(self._length - 1) :] if self._length > 1 else self.values[:0], values])

    def _rearranged(self, ids: NDArray[np.uint64]) -> Floats:
        moved = np.full((len(self.values), len(ids)), np.nan)
        if len(self._ids):
            order = np.argsort(self._ids, kind="stable")
            position = order[np.minimum(np.searchsorted(self._ids[order], ids), len(self._ids) - 1)]
            found = self._ids[position] == ids
            moved[:, found] = self.values[:, position[found]]
        return moved
