"""The last values of every cgroup, rows matched by id as cgroups come and go."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.blame import Floats, Ids


def positions(known: Ids, wanted: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where each wanted id stands among the known ones, valid where the second array is true."""
    if not len(known):
        return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=np.bool_)
    order = np.argsort(known, kind="stable")
    place = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
    return place, known[place] == wanted


def rearranged(values: NDArray[Any], known: Ids, wanted: Ids, missing: float) -> NDArray[Any]:
    """The last axis of `values`, which stands for the known ids, as the wanted ones."""
    place, found = positions(known, wanted)
    moved = np.full((*values.shape[:-1], len(wanted)), missing, dtype=values.dtype)
    moved[..., found] = values[..., place[found]]
    return moved


class Ring:
    """At most `length` ticks; what a newcomer did before it came is NaN."""

    __slots__ = ("_count", "_next", "_values", "ids", "length")

    def __init__(self, length: int) -> None:
        self.length = length
        self.ids: Ids = np.empty(0, dtype=np.uint64)
        """Ids of the columns, those pushed last."""
        self._values: Floats = np.empty((length, 0))
        self._count = self._next = 0

    @property
    def values(self) -> Floats:
        """Shape (ticks, cgroups), oldest first; a copy."""
        oldest = self._next - self._count
        return self._values[np.arange(oldest, self._next) % self.length]

    def push(self, ids: Ids, values: Floats) -> None:
        """Add a tick."""
        self.align(ids)
        self._values[self._next] = values
        self._next = (self._next + 1) % self.length
        self._count = min(self._count + 1, self.length)

    def align(self, ids: Ids) -> None:
        """Make the columns stand for these cgroups."""
        if not np.array_equal(ids, self.ids):
            self._values = rearranged(self._values, self.ids, ids, np.nan)
            self.ids = ids

    def restore(self, ids: Ids, values: Floats) -> None:
        """Become the ring whose `ids` and `values` these were."""
        self.ids = ids
        self._values = np.full((self.length, len(ids)), np.nan)
        self._count = min(len(values), self.length)
        self._values[: self._count] = values[len(values) - self._count :]
        self._next = self._count % self.length
