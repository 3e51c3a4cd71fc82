"""Whose doing it is that memory is short: limits, by the cgroups whose pages they take, and who takes the node's."""

from typing import NamedTuple

import numpy as np

from api.verdicts import How
from detector.arrays import Flags, Floats
from detector.limiters import Limiters
from detector.symptom import BlameSource, ratio
from detector.view import View

OWN, ABOVE, LIMIT = "memory.stall_own_limit_ns", "memory.stall_ancestor_limit_ns", "memstat.limit_bytes"
USED, REFAULTS = "memstat.usage_bytes", "memstat.refaults"
TAKEN = "memory.pressure_pages"
"""Pages that each cgroup takes while the node is short."""
LEAST_TAKEN = 4096.0
"""Pages a second, 16 MiB, that drain no node: a shell's, a log's."""
BY_TAKEN = BlameSource(takers=TAKEN, suspects=TAKEN, least_taken=LEAST_TAKEN)
SECONDS_PER_PAGE = 1e-4
"""What reading a page again costs at least: a read of a solid-state disk."""
LIMITED = 0.01
"""Seconds per second in reclaim under a limit from which refaults are that limit's doing, also on a node that is short
and though the limit is not seen used up. Elsewhere any reclaim under a limit is enough, for clean page cache is quickly
given back: 5000 pages take 5 ms."""
FULL_RATIO = 0.9
"""Part of a limit that is used while reclaim keeps within it, but for what is freed before usage is read."""
BY_HELD = BlameSource(ancestor_columns=(LIMIT,), used=USED, full_ratio=FULL_RATIO, used_how=How.CORRELATED)
"""Culprits of a limit further up, by the memory that each cgroup below it holds."""

_ANY = float(np.finfo(np.float64).tiny)


class RefaultCosts(NamedTuple):
    """Seconds per second that pages which come back cost each cgroup, by what took them; a row for each."""

    by_node: Floats
    """The node being short."""
    by_ancestors: Floats
    """Limits further up. Under the cgroup's own limit neither counts."""


def refault_costs(view: View) -> RefaultCosts | None:
    """None where refaults are not counted, or where no probe sees reclaim under limits."""
    pages = view.total(REFAULTS)
    if pages is None or not (view.has(OWN) or view.has(ABOVE)):
        return None
    limiters = Limiters(view, BY_HELD)
    own, shared, is_shared_full = _reclaim(view, limiters)
    is_short = view.has(TAKEN) and bool(np.nansum(view.rate(TAKEN)) >= LEAST_TAKEN)
    least = LIMITED if is_short else _ANY
    cost = np.where(own < np.where(limiters.full, _ANY, least), np.minimum(pages * SECONDS_PER_PAGE, 1.0), 0.0)
    is_ancestors = shared >= np.where(is_shared_full, _ANY, least)
    return RefaultCosts(np.where(is_ancestors, 0.0, cost), np.where(is_ancestors, cost, 0.0))


def part_of_others(view: View) -> Floats:
    """Part of the pages taken while the node was short that others than the cgroup took; all where few were."""
    pages = np.nan_to_num(view.rate(TAKEN)) if view.has(TAKEN) else np.zeros(len(view.ids))
    if pages.sum() < LEAST_TAKEN:
        return np.ones(len(view.ids))
    return np.asarray(1.0 - np.nan_to_num(ratio(pages, np.full(len(pages), pages.sum()))), dtype=np.float64)


def _reclaim(view: View, limiters: Limiters) -> tuple[Floats, Floats, Flags]:
    """Seconds per second for which any thread reclaimed under each cgroup's own limit, and under those further up, and
    where one of the latter is used up.

    A limit further up is that of all leaves below it, whichever of them reclaims.
    """
    nothing = np.zeros(len(view.ids))
    own, above = (np.nan_to_num(view.rate(column)) if view.has(column) else nothing for column in (OWN, ABOVE))
    shared, is_full = above.copy(), np.zeros(len(view.ids), dtype=np.bool_)
    by_limit: dict[int, float] = {row: float(own[row]) for row in view.tree.inner if own[row] > 0}
    for row in np.flatnonzero(above > 0).tolist():
        top, _ = limiters.above(row)
        if top is not None:
            by_limit[top] = by_limit.get(top, 0.0) + float(above[row])
            shared[row] = 0.0
    for top, seconds in by_limit.items():
        leaves = view.tree.leaves_below(top)
        below = leaves[leaves != top]
        shared[below] += seconds
        is_full[below] |= limiters.full[top]
    return own, shared, is_full
