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


_LEAST_ROOM = 64


class Ring:
    """At most `length` ticks of `width` series; values from before a cgroup appeared are NaN.

    A cgroup keeps its column from its first tick to its last, and one that comes takes a free one, so that what stays
    is not copied whenever one comes or goes.
    """

    __slots__ = ("_columns", "_count", "_next", "_values", "ids", "length", "width")

    def __init__(self, length: int, width: int = 1) -> None:
        self.length, self.width = length, width
        self.ids: Ids = np.empty(0, dtype=np.uint64)
        """Ids of the cgroups, in the order in which they were pushed last."""
        self._columns: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        """Column of each."""
        self._values: Floats = np.full((length, width, _LEAST_ROOM), np.nan)
        self._count = self._next = 0

    @property
    def values(self) -> Floats:
        """Shape (ticks, series, cgroups), oldest first; a copy."""
        return np.take(self._values[self._order()], self._columns, axis=-1)

    def series(self, number: int) -> Floats:
        """One series, shape (ticks, cgroups), oldest first; a copy."""
        return np.take(self._values[self._order(), number], self._columns, axis=-1)

    def push(self, ids: Ids, values: Floats) -> None:
        """Add a tick, shape (series, cgroups)."""
        self.align(ids)
        self._values[self._next][:, self._columns] = values
        self._next = (self._next + 1) % self.length
        self._count = min(self._count + 1, self.length)

    def align(self, ids: Ids) -> None:
        """Forget all cgroups but these, and take in those that are new."""
        if np.array_equal(ids, self.ids):
            return
        place, found = positions(self.ids, ids)
        columns = np.empty(len(ids), dtype=np.intp)
        columns[found] = self._columns[place[found]]
        columns[~found] = self._free(columns[found], len(ids) - int(found.sum()))
        self._values[:, :, columns[~found]] = np.nan
        if self._values.shape[2] > 2 * max(len(ids), _LEAST_ROOM):
            room = np.full((self.length, self.width, max(len(ids), _LEAST_ROOM)), np.nan)
            room[:, :, : len(ids)] = np.take(self._values, columns, axis=-1)
            self._values, columns = room, np.arange(len(ids))
        self.ids, self._columns = ids, columns

    def _free(self, taken: NDArray[np.intp], count: int) -> NDArray[np.intp]:
        """Return so many columns that are not taken, more room made if there are not as many."""
        room = self._values.shape[2]
        if len(taken) + count > room:
            more = np.full((self.length, self.width, max(room // 4, len(taken) + count - room)), np.nan)
            self._values = np.concatenate([self._values, more], axis=2)
        is_free = np.ones(self._values.shape[2], dtype=np.bool_)
        is_free[taken] = False
        return np.flatnonzero(is_free)[:count]

    def restore(self, ids: Ids, values: Floats) -> None:
        """Become the ring whose `ids` and `values` these were."""
        self.ids, self._columns = ids, np.arange(len(ids))
        self._values = np.full((self.length, self.width, max(len(ids), _LEAST_ROOM)), np.nan)
        self._count = min(len(values), self.length)
        self._values[: self._count, :, : len(ids)] = values[len(values) - self._count :]
        self._next = self._count % self.length

    def _order(self) -> NDArray[np.int64]:
        return np.arange(self._next - self._count, self._next) % self.length
