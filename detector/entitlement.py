"""Entitlement of a cgroup: the CPU time that it would get from a scheduler that kept to weights, requests and limits.

A loss gives a claim on others as far as it lies below the entitlement:

    claim = min(lost, max(entitled - used, 0))        in seconds per second
    entitled = min(max(share by weight, request), limit, what its threads want)

The share by weight is that of weighted max-min fairness: on each level of the tree, what a cgroup does not want goes to
its siblings in proportion to their weights (the fluid limit of CFS and EEVDF). Threads beyond the share add nothing:
a hundred spinning threads use the whole share of their cgroup, and what they wait above it is no neighbour's doing.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from api.cgroup_path import lineage, parent
from api.frame import CgroupInfo
from detector.arrays import Floats
from detector.subtrees import Subtrees

DEFAULT_WEIGHT = 100.0
"""Weight of a cgroup whose file was not read, as the kernel sets it."""
LEAST_WEIGHT = 1.0
"""cpu.weight of best-effort work, as the kubelet gives to its BestEffort class (2 cpu.shares)."""


class Competitors:
    """The children of one cgroup with their wishes and weights, ordered once for the shares of many of them."""

    def __init__(self, wanted: Floats, weights: Floats) -> None:
        """`wanted` in cores, `weights` as of cgroup v2; both of shape (children,)."""
        weights = np.where(weights > 0, weights, DEFAULT_WEIGHT)
        order = np.argsort(wanted / weights, kind="stable")
        self._place = np.empty(len(order), dtype=np.intp)
        self._place[order] = np.arange(len(order))
        self._wanted, self._weights = wanted[order], weights[order]
        self._before = np.concatenate([[0.0], np.cumsum(self._wanted)])
        self._left = np.cumsum(self._weights[::-1])[::-1]
        self._wanted_per_weight = self._wanted / self._weights

    def share_of(self, child: int, amount: float) -> float:
        """Return what a child gets of an amount if it wants all of it and its siblings what they want."""
        place = int(self._place[child])
        own_want, own_weight = float(self._wanted[place]), float(self._weights[place])
        before, left = self._before[:-1].copy(), self._left.copy()
        before[place + 1 :] -= own_want  # it comes last, so that others come before it and share with it
        left[place + 1 :] += own_weight
        level = np.maximum(amount - before, 0.0) / left
        unmet = self._wanted_per_weight > level
        unmet[place] = False
        first = int(unmet.argmax())
        if unmet[first]:
            return float(level[first]) * own_weight
        return max(amount - (float(self._before[-1]) - own_want), 0.0)


def share_by_weight(cores: float, levels: Iterable[tuple[Competitors, int]]) -> float:
    """Return the cores that a cgroup may use by weight.

    Each level, outermost first, has all children of one cgroup, and the place of the one that leads to the cgroup. On
    the way down, that one is taken to want all it can get.
    """
    amount = cores
    for competitors, place in levels:
        amount = competitors.share_of(place, amount)
    return amount


class Shares:
    """Shares of CPU by weight in one tick; the children of each cgroup are ordered once."""

    def __init__(
        self,
        cgroups: Sequence[CgroupInfo],
        subtrees: Subtrees,
        wanted: Floats,
        weights: Floats | None,
        *,
        cpus: int,
        is_best_effort: Callable[[str], bool],
    ) -> None:
        """`wanted` has the cores that each cgroup's own threads used or waited for, `weights` its cpu.weight, NaN where
        that is not known; `is_best_effort` tells whether only best-effort work lives at a path."""
        self._cgroups, self._subtrees, self._weights = cgroups, subtrees, weights
        self._wanted = subtrees.sums(wanted, np.arange(len(cgroups), dtype=np.intp))
        self._cpus, self._is_best_effort = cpus, is_best_effort
        self._levels: dict[tuple[str, bool], tuple[dict[str, int], Competitors]] = {}

    def of(self, path: str, *, yields: bool) -> float:
        """Return the cores that a cgroup gets if its threads want as many; `yields`: best-effort work beside it counts
        with the least weight."""
        levels = []
        for each in reversed(lineage(path)):
            place_of, competitors = self._level(parent(each), yields=yields)
            if each in place_of:
                levels.append((competitors, place_of[each]))
        return share_by_weight(float(self._cpus), levels)

    def _level(self, path: str, *, yields: bool) -> tuple[dict[str, int], Competitors]:
        """The children of a cgroup, whose shares most victims of a tick have to be told."""
        key = (path, yields)
        if key not in self._levels:
            rows = self._subtrees.children(path)
            paths = [self._cgroups[row].path for row in rows.tolist()]
            weights = np.full(len(rows), DEFAULT_WEIGHT) if self._weights is None else self._weights[rows]
            if yields:
                weights = np.where([self._is_best_effort(each) for each in paths], LEAST_WEIGHT, weights)
            competitors = Competitors(self._wanted[rows], np.nan_to_num(weights))
            self._levels[key] = {each: place for place, each in enumerate(paths)}, competitors
        return self._levels[key]


def claimable(lost: float, *, entitled: float, used: float) -> float:
    """Return the part of a loss that a cgroup may hold against others."""
    return min(lost, max(entitled - used, 0.0))


def entitled_cores(share: float, *, request: float, limit: float) -> float:
    """Return the entitlement of a cgroup that wants as much; NaN stands for a request or limit that is not known."""
    return float(np.nanmin([np.nanmax([share, request]), limit]))
