"""Cgroup above each culprit, for pairs of victim and culprit that there is no room to keep one by one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import ROOT, parent
from api.frame import OTHER_ID, CgroupInfo

Ids = NDArray[np.uint64]
Places = NDArray[np.intp]
_NOWHERE = -1


class Above(NamedTuple):
    """Cgroups above some others; `OTHER_ID` where none is known, or only the root, which is above all."""

    ids: Ids
    first: Places
    """Place of the cgroup; those below it have the places from there to `end`. None is below one that is gone."""
    end: Places

    def hold(self, rows: Places, places: Places) -> NDArray[np.bool_]:
        """Whether the cgroup in each of the rows, or one below it, is the one at a place; true for those not known."""
        is_within = (self.first[rows] <= places) & (places < self.end[rows])
        return np.asarray(is_within | (places == _NOWHERE), dtype=np.bool_)


def _none() -> tuple[CgroupInfo, ...]:
    return ()


class Parents:
    """Parents of the cgroups that live or are remembered; built when they are asked for after one came or went."""

    def __init__(
        self,
        alive: Callable[[], Sequence[CgroupInfo]] = _none,
        gone: Callable[[], Iterable[CgroupInfo]] = _none,
    ) -> None:
        """`alive` gives the same object as long as no cgroup comes or goes; `gone` those that are remembered."""
        self._alive, self._gone = alive, gone
        self._built_from: Sequence[CgroupInfo] | None = None
        self._above_gone: dict[int, int] = {}

    def above(self, ids: Ids) -> Above:
        """Cgroup above each of the ids."""
        self._follow()
        rows = np.searchsorted(self._children[:-1], ids)
        above = np.where(self._children[rows] == ids, self._parents[rows], np.uint64(OTHER_ID))
        places = self.places(above)
        return Above(above, places, self._ends[places])

    def places(self, ids: Ids) -> Places:
        """Place of each id among those that live, less than zero where it is not known."""
        self._follow()
        rows = np.searchsorted(self._ids[:-1], ids)
        return np.where(self._ids[rows] == ids, self._place_of[rows], _NOWHERE)

    def _follow(self) -> None:
        if (alive := self._alive()) is not self._built_from:
            self._number(alive)
            self._relate(alive)
            self._built_from = alive

    def _number(self, alive: Sequence[CgroupInfo]) -> None:
        """Number cgroups so that a subtree follows its top. The last entry of each array stands for no place."""
        infos = sorted(alive, key=lambda info: info.path.replace("/", "\0"))  # no text of a path has this character
        number = {info.path: place for place, info in enumerate(infos)}
        ends = list(range(1, len(infos) + 1))
        for place, info in reversed(list(enumerate(infos))):
            above = number.get(parent(info.path), _NOWHERE)
            if above != _NOWHERE:
                ends[above] = max(ends[above], ends[place])
        ids = np.array([info.id for info in infos], dtype=np.uint64)
        order = np.argsort(ids)
        self._ids = np.append(ids[order], np.uint64(OTHER_ID))
        self._place_of = np.append(order, _NOWHERE)
        self._ends = np.array([*ends, 0], dtype=np.intp)

    def _relate(self, alive: Sequence[CgroupInfo]) -> None:
        """Find the parents of those that live, and of those that went since the last time."""
        gone = list(self._gone())
        at = {info.path: info.id for info in (*gone, *alive)}  # of cgroups at one path, the one that lives
        known = self._above_gone
        self._above_gone = {info.id: known.get(info.id) or _above(info, at) for info in gone}
        related = self._above_gone | {info.id: _above(info, at) for info in alive}
        children = np.fromiter(related.keys(), dtype=np.uint64, count=len(related))
        order = np.argsort(children)
        above = np.fromiter(related.values(), dtype=np.uint64, count=len(related))
        self._children = np.append(children[order], np.uint64(OTHER_ID))
        self._parents = np.append(above[order], np.uint64(OTHER_ID))


def _above(info: CgroupInfo, at: Mapping[str, int]) -> int:
    above = parent(info.path)
    return OTHER_ID if above == ROOT else at.get(above, OTHER_ID)
