"""The last values of every cgroup, rows matched by id as cgroups come and go."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.arrays import Floats, Ids


def positions(known: Ids, wanted: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the position of each wanted id among the known ones, valid where the second array is true."""
    if not len(known):
        return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=np.bool_)
    order = np.argsort(known, kind="stable")
    place = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
    return place, known[place] == wanted


def rearranged(values: NDArray[Any], known: Ids, wanted: Ids, missing: float) -> NDArray[Any]:
    """Return `values`, whose last axis is the known ids, for the wanted ids."""
    place, found = positions(known, wanted)
    if not len(known):
        return np.full((*values.shape[:-1], len(wanted)), missing, dtype=values.dtype)
    moved = np.take(values, place, axis=-1)
    if not found.all():
        moved[..., ~found] = missing
    return moved


class Ring:
    """At most `length` ticks of `width` series; values from before a cgroup appeared are NaN."""

    __slots__ = ("_count", "_next", "_values", "ids", "length", "width")

    def __init__(self, length: int, width: int = 1) -> None:
        self.length, self.width = length, width
        self.ids: Ids = np.empty(0, dtype=np.uint64)
        """Ids of the columns, those pushed last."""
        self._values: Floats = np.empty((length, width, 0))
        self._count = self._next = 0

    @property
    def values(self) -> Floats:
        """Shape (ticks, series, cgroups), oldest first; a copy."""
        return self._values[self._order()]

    def series(self, number: int) -> Floats:
        """One series, shape (ticks, cgroups), oldest first; a copy."""
        return np.asarray(self._values[self._order(), number], dtype=np.float64)

    def push(self, ids: Ids, values: Floats) -> None:
        """Add a tick, shape (series, cgroups)."""
        self.align(ids)
        self._values[self._next] = values
        self._next = (self._next + 1) % self.length
        self._count = min(self._count + 1, self.length)

    def align(self, ids: Ids) -> None:
        """Make the columns those of these cgroups."""
        if not np.array_equal(ids, self.ids):
            self._values = rearranged(self._values, self.ids, ids, np.nan)
            self.ids = ids

    def restore(self, ids: Ids, values: Floats) -> None:
        """Become the ring whose `ids` and `values` these were."""
        self.ids = ids
        self._values = np.full((self.length, self.width, len(ids)), np.nan)
        self._count = min(len(values), self.length)
        self._values[: self._count] = values[len(values) - self._count :]
        self._next = self._count % self.length

    def _order(self) -> NDArray[np.int64]:
        return np.arange(self._next - self._count, self._next) % self.length
