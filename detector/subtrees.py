"""Cgroups of one tick in the order of their tree, so that a subtree is a run of rows: sums and ids of it are slices."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import parent
from api.frame import CgroupInfo

_SLASH, _BEYOND = "\x00", "\x01"
"""Sort before every character of a path, which is printable: what lies below a cgroup follows it at once."""
_NONE: NDArray[np.intp] = np.empty(0, dtype=np.intp)


class Subtrees:
    """Immutable; made anew when cgroups come or go."""

    __slots__ = ("_children", "_ends", "_ids", "_keys", "_order", "_places")

    def __init__(self, cgroups: Sequence[CgroupInfo]) -> None:
        keys = [_key(info.path) for info in cgroups]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._keys = [keys[row] for row in order]
        self._order = np.array(order, dtype=np.intp)
        self._ids = np.array([cgroups[row].id for row in order], dtype=np.uint64)
        self._places = np.empty(len(order), dtype=np.intp)
        self._places[self._order] = np.arange(len(order))
        self._ends = np.array([bisect_left(self._keys, key[:-1] + _BEYOND) for key in self._keys], dtype=np.intp)
        below: dict[str, list[int]] = {}
        for row, info in enumerate(cgroups):
            below.setdefault(parent(info.path), []).append(row)
        self._children = {path: np.array(rows, dtype=np.intp) for path, rows in below.items()}

    def rows(self, path: str) -> NDArray[np.intp]:
        """Return the rows of a cgroup and of all below it; none where it is not there and nothing is below it.

        The root stands for its own tasks: nothing counts as being below it.
        """
        return self._order[self._span(path)]

    def ids(self, path: str) -> NDArray[np.uint64]:
        """Return the ids of a cgroup and of all below it."""
        return self._ids[self._span(path)]

    def sums(self, own: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return what each of these cgroups and all below it have, of a column that has a cgroup's own part only."""
        totals = np.concatenate([[0.0], np.cumsum(np.nan_to_num(own)[self._order])])
        starts = self._places[rows]
        return np.asarray(totals[self._ends[starts]] - totals[starts], dtype=np.float64)

    def children(self, path: str) -> NDArray[np.intp]:
        """Return the rows of the cgroups just below a path, which may be the root."""
        return self._children.get(path, _NONE)

    def _span(self, path: str) -> slice:
        key = _key(path)
        start = bisect_left(self._keys, key)
        return slice(start, bisect_left(self._keys, key[:-1] + _BEYOND, start))


def _key(path: str) -> str:
    return path.replace("/", _SLASH) + _SLASH
