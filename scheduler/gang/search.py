"""The search for the nodes of a gang that is placed in one part of the network: what nodes took, and which to try.

Resources and ports tell how many members a node takes at most; CPUs, devices and other filters show only when members
are tried on it. Few nodes are tried: those of the best placements, of which one may take an attempt or several.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.gang.network import Gathering, NetworkTree, Slots

MEMBERS_PER_ATTEMPT = 48
"""Members that are tried on rows in one attempt, beside those of the plan itself, before the next goes on.

A row is tried to its end: the last one of an attempt may take any number more.
"""
LOOKED_AT = 64
"""Placements, and rows of them beside those of the best, whose room is tried at once."""


@dataclass(slots=True)
class Search:
    """What was found out for a gang's plan, in one attempt or over several."""

    at_most: int
    """Members that rows not tried yet are expected to take at most."""
    exact: dict[Row, int] = field(default_factory=dict)
    """Members that rows took when they were tried."""
    tries: int = 0
    doubted: bool = False
    """The estimate left no placement once: rows are tried before they are counted out."""
    generation: int = -1
    """Of the snapshot, when the rows were tried."""
    at: float = 0.0
    """Seconds since the epoch at the last attempt that went on with it."""
    members_left: int = 0
    """Members that may still be tried in this attempt."""
    batch: deque[Row] = field(default_factory=deque)
    """Rows that are tried before placements are weighed again, however many attempts that takes."""
    short: bool = False
    """A row of the batch took fewer members than it was expected to."""

    def certain(self, offers: Mapping[Row, int]) -> frozenset[Row]:
        """Rows with room for one member of a gang whose members are alike: the filters let the attempted one pass.

        What they do not see, a share of CPUs or devices, shows when a plan fails; after that nothing is certain.
        """
        return frozenset() if self.doubted else frozenset(row for row, count in offers.items() if count == 1)

    def goes_on(self, snapshot: Snapshot) -> None:
        """Begin another attempt: rows that changed since are to be tried anew."""
        self.members_left = MEMBERS_PER_ATTEMPT
        changed = snapshot.changed_since(self.generation) if self.exact else None
        if changed is not None:
            stale = set(np.arange(snapshot.rows_used)[changed].tolist())
            self.exact = {row: count for row, count in self.exact.items() if row not in stale}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a gang may be placed."""

    tree: NetworkTree
    gathering: Gathering
    existing: Mapping[Row, int]
    multiples: Mapping[str, int]
    held: Mapping[Row, int]

    def placements(self, offers: Mapping[Row, int], members: int, count: int) -> list[Slots]:
        """The best placements by what rows offer, so many of them at most."""
        self.tree.weigh(offers, self.existing, self.multiples)
        must = self.tree.must_layer(self.gathering)
        return list(islice(self.tree.placements(must, self.multiples, members, frozenset(self.held)), count))


def laid_out(members: Sequence[PodInfo], chosen: Iterable[Row], promised: Mapping[str, Row]) -> dict[str, Row]:
    """Rows by member: the promised one where it is among the chosen, the others in order."""
    left = Counter(chosen)
    rows: dict[str, Row] = {}
    for info in members:
        row = promised.get(info.uid, -1)
        if left[row] > 0:
            rows[info.uid] = row
            left[row] -= 1
    others = left.elements()
    return {info.uid: rows[info.uid] if info.uid in rows else next(others) for info in members}


def estimated(offers: Mapping[Row, int], exact: Collection[Row], at_most: int) -> dict[Row, int]:
    """Room of rows: what was tried, and of others not more than the roomiest of those took."""
    return {row: count if row in exact else min(count, at_most) for row, count in offers.items()}


def untried_rows(found: Sequence[Slots], exact: AbstractSet[Row], at_least: int) -> list[Row]:
    """Rows of the best placement whose room was not tried, and of the next best ones; empty when there is no doubt."""
    doubtful = [list(_used(slots) - exact) for slots in found]
    if not doubtful[0]:
        return []
    rows = list(dict.fromkeys(row for each in doubtful for row in each))
    return rows[: max(len(doubtful[0]), at_least)]


def _used(slots: Slots) -> set[Row]:
    return {domain.row for domain, count in slots if count}
