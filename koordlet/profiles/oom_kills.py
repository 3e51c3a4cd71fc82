"""OOM kills of containers between two rows of their profiles. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo
from api.window import Delta

COLUMN = "memory.oom_kills"


class OomKills:
    """Sums the kills of each cgroup over ticks until `take`; also of cgroups that are gone by then."""

    def __init__(self) -> None:
        self._kills: dict[int, tuple[CgroupInfo, int]] = {}

    def after_tick(self, cgroups: Sequence[CgroupInfo], delta: Delta) -> None:
        """Add the growth of one tick; nothing where kills are not measured."""
        grown: NDArray[Any] | None = delta.table.columns.get(COLUMN)
        if grown is None:
            return
        for row in np.flatnonzero(grown):
            info = cgroups[int(row)]
            before = self._kills.get(info.id, (info, 0))[1]
            self._kills[info.id] = (info, before + int(grown[row]))

    def take(self) -> list[tuple[CgroupInfo, int]]:
        """Return the cgroups with kills since the last call, and how many."""
        taken, self._kills = list(self._kills.values()), {}
        return taken
