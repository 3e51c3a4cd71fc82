"""Roll-up of culprits: many small ones become the lowest cgroup above them that holds most of them.

Hundreds of jobs that each take a thousandth of a CPU are one loss to whom it costs a third of one, and no list of their
names would say so: `Attributor` gives those with a small share here, and lists the rest as they are.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import ancestors, is_within
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


class Tree:
    """The cgroups above some paths, each once; the root counts as none."""

    def __init__(self, paths: Sequence[str]) -> None:
        chains = [list(ancestors(path)) if path.startswith("/") else [] for path in paths]
        self.paths = sorted({above for chain in chains for above in chain})
        place = {path: number for number, path in enumerate(self.paths)}
        self.depth: NDArray[np.int64] = np.array([path.count("/") for path in self.paths], dtype=np.int64)
        self.above = np.zeros((len(paths), len(self.paths)), dtype=np.bool_)
        """Whether a path (row) lies below a cgroup (column)."""
        for number, chain in enumerate(chains):
            self.above[number, [place[each] for each in chain]] = True

    def holds(self, path: str) -> NDArray[np.bool_]:
        """Return which of the cgroups are a path or above it."""
        return np.array([is_within(path, each) for each in self.paths], dtype=np.bool_)


def roll_up(
    victim: str, tree: Tree, members: NDArray[np.intp], shares: Floats
) -> tuple[list[tuple[str, float]], Floats]:
    """Name cgroups instead of their members: names with shares, and what is left of the members' own shares.

    `members` are places among the tree's paths, each with its share of the victim's loss. A cgroup that the victim is
    in is never named: it is no neighbour.
    """
    left = shares.copy()
    named: list[tuple[str, float]] = []
    if len(members) < LEAST_MEMBERS or not tree.paths:
        return named, left
    above, barred = tree.above[members], tree.holds(victim)
    for _ in range(MOST_ROUNDS):
        sums, counts = left @ above, above[left > 0].sum(axis=0)
        fits = (sums >= max(LEAST_SHARE, MOST_OF_THEM * float(left.sum()))) & (counts >= LEAST_MEMBERS) & ~barred
        if not fits.any():
            break
        lowest = int(np.argmax(np.where(fits, tree.depth + sums / (1.0 + sums), -1.0)))
        named.append((tree.paths[lowest], float(sums[lowest])))
        left[above[:, lowest]] = 0.0
    return named, left
