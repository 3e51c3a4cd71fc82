"""Roll-up of culprits: many small ones become the lowest cgroup above them that holds most of them.

Hundreds of jobs that each take a thousandth of a CPU cost a victim a third of one together, and no list of their names
would say so: `Attributor` gives those with a small share here, and lists the rest as they are. Pods of one class are
next to each other, and next to the victim; where no cgroup holds most of them but not the victim, their workload or
namespace does.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import ancestors, lineage
from api.verdicts import Group, group_kind
from detector.arrays import Floats

SMALL_SHARE = 0.05
"""Part of a loss below which a culprit may be rolled up."""
LEAST_MEMBERS = 8
LEAST_SHARE = 0.1
"""What so many of them must cost together to be named by the cgroup above."""
MOST_OF_THEM = 0.5
"""Part of all small ones that one cgroup must hold."""
MOST_ROUNDS = 3
"""Cgroups named instead of members, for one victim."""


_BELOW_ALL_CGROUPS = 1000
_RANKS = {kind: -_BELOW_ALL_CGROUPS - size for size, kind in enumerate(Group)}
"""By kind: a pod without workload has its namespace as its first group, which is no smaller for it."""


class Tree:
    """The cgroups above some paths, and the groups that they are in, each once; the root counts as none."""

    def __init__(self, paths: Sequence[str], groups: Sequence[Sequence[str]] = ()) -> None:
        """`groups` names those of each path; a cgroup is preferred to any of them, and then the smaller kind."""
        chains = [[*ancestors(path)] if path.startswith("/") else [] for path in paths]
        ranks = {above: above.count("/") for chain in chains for above in chain}
        for chain, names in zip(chains, groups, strict=False):
            chain += names
        of_groups = {name: group_kind(name) for names in groups for name in names}
        ranks |= {name: _RANKS[kind] for name, kind in of_groups.items() if kind}
        self.paths = sorted(ranks)
        self._place = {path: number for number, path in enumerate(self.paths)}
        self.depth: NDArray[np.int64] = np.array([ranks[path] for path in self.paths], dtype=np.int64)
        self.above = np.full((len(paths), max(map(len, chains), default=0)), len(self.paths), dtype=np.intp)
        """For each path (row) the places of the cgroups above it, and then that of none, which is their number."""
        for number, chain in enumerate(chains):
            self.above[number, : len(chain)] = [self._place[each] for each in chain]

    def holds(self, path: str, groups: Sequence[str] = ()) -> NDArray[np.bool_]:
        """Return which of the cgroups are a path or above it, or among its groups."""
        held = np.zeros(len(self.paths), dtype=np.bool_)
        held[[self._place[each] for each in (*lineage(path), *groups) if each in self._place]] = True
        return held

    def sums(self, above: NDArray[np.intp], values: Floats) -> Floats:
        """Sum for each cgroup the values of the paths below it, whose rows of `above` these are."""
        spread = np.repeat(values, above.shape[1])
        found = np.bincount(above.ravel(), spread, minlength=len(self.paths) + 1)
        return np.asarray(found[:-1], dtype=np.float64)


def roll_up(
    victim: str, tree: Tree, members: NDArray[np.intp], shares: Floats, groups: Sequence[str] = ()
) -> tuple[list[tuple[str, float]], Floats]:
    """Name cgroups instead of their members: names with shares, and what is left of the members' own shares.

    `members` are places among the tree's paths, each with its share of the victim's loss. A cgroup that the victim is
    in, and one of its own `groups`, is never named: it is no neighbour.
    """
    left = shares.copy()
    named: list[tuple[str, float]] = []
    if len(members) < LEAST_MEMBERS or not tree.paths:
        return named, left
    above, barred = tree.above[members], tree.holds(victim, groups)
    for _ in range(MOST_ROUNDS):
        sums, counts = tree.sums(above, left), tree.sums(above, (left > 0).astype(np.float64))
        fits = (sums >= max(LEAST_SHARE, MOST_OF_THEM * float(left.sum()))) & (counts >= LEAST_MEMBERS) & ~barred
        if not fits.any():
            break
        lowest = int(np.argmax(np.where(fits, tree.depth + sums / (1.0 + sums), -np.inf)))
        named.append((tree.paths[lowest], float(sums[lowest])))
        left[(above == lowest).any(axis=1)] = 0.0
    return named, left
