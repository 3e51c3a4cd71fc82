"""Entitlement of a cgroup: the CPU time that it would get from a scheduler that kept to weights, requests and limits.

A loss gives a claim on others as far as it lies below the entitlement:

    claim = min(lost, max(entitled - used, 0))        in seconds per second
    entitled = min(max(share by weight, request), limit, what its threads want)

The share by weight is that of weighted max-min fairness: on each level of the tree, what a cgroup does not want goes to
its siblings in proportion to their weights (the fluid limit of CFS and EEVDF). Threads beyond the share add nothing:
a hundred spinning threads use the whole share of their cgroup, and what they wait above it is no neighbour's doing.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DEFAULT_WEIGHT = 100.0
"""Weight of a cgroup whose file was not read, as the kernel sets it."""
LEAST_WEIGHT = 1.0
"""cpu.weight of best-effort work, as the kubelet gives to its BestEffort class (2 cpu.shares)."""


def fair_shares(amount: float, wanted: Floats, weights: Floats) -> Floats:
    """Divide `amount` among competitors by weight; none gets more than it wants, and the rest goes to the others."""
    if not len(wanted):
        return np.zeros(0)
    weights = np.where(weights > 0, weights, DEFAULT_WEIGHT)
    order = np.argsort(wanted / weights, kind="stable")
    want, weight = wanted[order], weights[order]
    before = np.concatenate([[0.0], np.cumsum(want)[:-1]])  # infinite wishes come last
    left = np.cumsum(weight[::-1])[::-1]
    level = np.maximum(amount - before, 0.0) / left
    unmet = np.flatnonzero(want > level * weight)
    if not len(unmet):
        return wanted.copy()
    first = int(unmet[0])
    shares = want.copy()
    shares[first:] = level[first] * weight[first:]
    found = np.empty(len(wanted))
    found[order] = shares
    return found


def share_by_weight(cores: float, levels: Sequence[tuple[Floats, Floats, int]]) -> float:
    """Return the cores that a cgroup may use by weight.

    Each level, outermost first, has the wishes and weights of all children of one cgroup, and the place of the one that
    leads to the cgroup. On the way down, that one is taken to want all it can get.
    """
    amount = cores
    for wanted, weights, place in levels:
        asking = wanted.copy()
        asking[place] = np.inf
        amount = float(fair_shares(amount, asking, weights)[place])
    return amount


def claimable(lost: float, *, entitled: float, used: float) -> float:
    """Return the part of a loss that a cgroup may hold against others."""
    return min(lost, max(entitled - used, 0.0))


def entitled_cores(share: float, *, request: float, limit: float) -> float:
    """Return the entitlement of a cgroup that wants as much; NaN stands for a request or limit that is not known."""
    return float(np.nanmin([np.nanmax([share, request]), limit]))
