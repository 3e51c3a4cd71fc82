"""Ancestors, inner cgroups and leaves among the cgroups of a frame, as rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import is_below, parent
from api.frame import CgroupInfo
from api.tree_classes import TreeClasses
from detector.subtrees import Subtrees


class CgroupTree:
    """Immutable; made anew when cgroups come or go. The root's own tasks are a neighbour like any other."""

    __slots__ = ("_below", "_cgroups", "_classes", "_row_of", "_subtrees", "inner", "leaves")

    def __init__(self, cgroups: Sequence[CgroupInfo]) -> None:
        self._cgroups = cgroups
        self._below: dict[int, NDArray[np.intp]] = {}
        self._subtrees: Subtrees | None = None
        self._classes: TreeClasses | None = None
        self._row_of = {info.path: row for row, info in enumerate(cgroups)}
        inner = {row for info in cgroups if (row := self._row_of.get(parent(info.path))) is not None}
        self.leaves: NDArray[np.bool_] = np.ones(len(cgroups), dtype=np.bool_)
        self.leaves[list(inner)] = False
        self.inner = frozenset(row for row in inner if cgroups[row].path != "/")
        """Rows that have children, without the root."""

    @property
    def subtrees(self) -> Subtrees:
        """The cgroups in the order of their tree."""
        self._subtrees = self._subtrees or Subtrees(self._cgroups)
        return self._subtrees

    @property
    def classes(self) -> TreeClasses:
        """QoS classes on the tree."""
        self._classes = self._classes or TreeClasses({info.path: info for info in self._cgroups})
        return self._classes

    def row_of(self, path: str) -> int | None:
        """Row of the cgroup at a path."""
        return self._row_of.get(path)

    def ancestors(self, row: int) -> list[int]:
        """Rows above, nearest first."""
        found = []
        path = parent(self._cgroups[row].path)
        while path:
            above = self._row_of.get(path)
            if above is not None:
                found.append(above)
            path = parent(path)
        return found

    def leaves_below(self, row: int) -> NDArray[np.intp]:
        """Rows of the leaves in a cgroup's subtree, the cgroup itself where it is one; computed once each."""
        found = self._below.get(row)
        if found is None:
            top = self._cgroups[row].path
            rows = [leaf for leaf in np.flatnonzero(self.leaves).tolist() if is_below(self._cgroups[leaf].path, top)]
            found = self._below[row] = np.array(rows or [row], dtype=np.intp)
        return found
