"""Who stands above and below whom among the cgroups of a frame, by their paths."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo


class CgroupTree:
    """Immutable; made anew when cgroups come or go. The root's own tasks are a neighbour like any other."""

    __slots__ = ("_cgroups", "_row_of", "inner", "leaves")

    def __init__(self, cgroups: Sequence[CgroupInfo]) -> None:
        self._cgroups = cgroups
        self._row_of = {info.path: row for row, info in enumerate(cgroups)}
        inner = {row for info in cgroups if (row := self._row_of.get(_parent(info.path))) is not None}
        self.leaves: NDArray[np.bool_] = np.ones(len(cgroups), dtype=np.bool_)
        self.leaves[list(inner)] = False
        self.inner = frozenset(row for row in inner if cgroups[row].path != "/")
        """Rows that have children, without the root."""

    def row_of(self, path: str) -> int | None:
        """Row of the cgroup at a path."""
        return self._row_of.get(path)

    def ancestors(self, row: int) -> list[int]:
        """Rows above, nearest first."""
        found = []
        path = _parent(self._cgroups[row].path)
        while path:
            above = self._row_of.get(path)
            if above is not None:
                found.append(above)
            path = _parent(path)
        return found


def is_below(path: str, other: str) -> bool:
    """Whether a cgroup stands in the subtree of another one, which is not the root."""
    return other != "/" and path.startswith(f"{other.rstrip('/')}/")


def _parent(path: str) -> str:
    """Path above; empty for the root."""
    return "" if path == "/" else path.rpartition("/")[0] or "/"
