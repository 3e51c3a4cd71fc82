"""Which limit further up a cgroup runs into, where several ancestors have one."""

import numpy as np

from detector.arrays import Flags
from detector.symptom import BlameSource
from detector.view import View


class Limiters:
    """The cgroups that limit in one tick, and those among them whose limit is used up."""

    def __init__(self, view: View, source: BlameSource) -> None:
        self._tree = view.tree
        limits = [view.rate(column) for column in source.ancestor_columns if view.has(column)]
        none = np.zeros(len(view.ids), dtype=np.bool_)
        self._can_tell = source.full_ratio > 0
        self._limiting: Flags = np.logical_or.reduce([none, *((each > 0) & (each < np.inf) for each in limits)])
        self.full: Flags = none
        """Those that use `full_ratio` of their limit; none where that is not known."""
        if self._can_tell and view.has(source.used):
            used = view.rate(source.used)
            self.full = self._limiting & np.logical_or.reduce(
                [none, *(used >= source.full_ratio * each for each in limits)]
            )

    def above(self, row: int) -> tuple[int | None, bool]:
        """Row of the nearest ancestor whose limit is used up, else of the nearest that limits; and whether no other
        comes into question."""
        limiting = [each for each in self._tree.ancestors(row) if self._limiting[each]]
        full = [each for each in limiting if self.full[each]]
        found = next(iter(full or limiting), None)
        return found, not self._can_tell or len(limiting) < 2 or len(full) == 1
