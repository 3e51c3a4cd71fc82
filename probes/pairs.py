"""Victim-culprit totals kept in user space: the kernel's map is drained each read, so it never fills with old pairs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID, Table
from probes.parents import Parents

Ids = NDArray[np.uint64]


_KEPT_RATIO = 0.5 ** (1 / 30)
"""Part of a pair's weight that one addition leaves: with one a second, half of it after 30 seconds."""
_LEVELS_AT_ONCE = 3
"""Levels of the hierarchy that a pair may rise in one addition, before it is `OTHER_ID`'s."""


class PairLedger:
    """Cumulative amounts for each (victim, culprit), at most `max_pairs` of them.

    When there are more, the pairs of all victims with the least in the last half minute or so are folded: what they
    grew by goes to the cgroup above the culprit, so that hundreds of small ones get one name, or to
    `OTHER_ID` where the victim is in that cgroup too. What a table told of them before is `OTHER_ID`'s, whose growth
    readers do not count where pairs are gone; no amount is lost. What was large long ago does not keep the place of a
    newcomer.
    """

    def __init__(self, max_pairs: int = 8192) -> None:
        self._max_pairs = max_pairs
        self.parents = Parents()
        """Of the cgroups that occur here; without them all that is folded is `OTHER_ID`'s."""
        self._victims: Ids = np.empty(0, dtype=np.uint64)
        self._culprits: Ids = np.empty(0, dtype=np.uint64)
        self._amounts: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._told: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        """Of the amounts, what the last table had."""
        self._weights: NDArray[np.float64] = np.empty(0)
        """Amounts that fade, by which pairs are folded."""

    def add(self, victims: Ids, culprits: Ids, amounts: NDArray[np.uint64]) -> None:
        """Add amounts pair by pair; all three have shape (n,)."""
        if not len(victims):
            return
        # Ids become small numbers first: sorting those is many times faster.
        known_victims, victim_codes = np.unique(np.concatenate([self._victims, victims]), return_inverse=True)
        known_culprits, culprit_codes = np.unique(np.concatenate([self._culprits, culprits]), return_inverse=True)
        pairs = _Pairs(
            known_victims,
            known_culprits,
            victim_codes * len(known_culprits) + culprit_codes,
            np.concatenate([self._amounts, amounts.astype(np.uint64)]),
            np.concatenate([self._told, np.zeros(len(victims), dtype=np.uint64)]),
            np.concatenate([self._weights * _KEPT_RATIO, amounts.astype(np.float64)]),
        ).summed()
        for level in range(_LEVELS_AT_ONCE):
            if len(pairs.codes) <= self._max_pairs:
                break
            parents = Parents() if level == _LEVELS_AT_ONCE - 1 else self.parents
            pairs = pairs.folded(self._max_pairs // 2, parents)
        width = len(pairs.culprits)
        self._victims, self._culprits = pairs.victims[pairs.codes // width], pairs.culprits[pairs.codes % width]
        self._amounts, self._told, self._weights = pairs.amounts, pairs.told, pairs.weights

    def forget(self, ids: Ids) -> None:
        """Drop every pair whose victim is among `ids`; what a gone culprit did to the living stays."""
        if len(self._victims):
            keep = ~np.isin(self._victims, ids)
            self._victims, self._culprits = self._victims[keep], self._culprits[keep]
            self._amounts, self._told, self._weights = self._amounts[keep], self._told[keep], self._weights[keep]

    def table(self, column: str) -> Table:
        """All pairs as a table keyed by `cgroup` (victim) and `culprit`; what is folded later counts them as told."""
        self._told = self._amounts
        return Table({"cgroup": self._victims, "culprit": self._culprits}, {column: self._amounts})


class _Pairs(NamedTuple):
    """Rows of a ledger, by numbers of their victims and culprits: `codes` are victim x number of culprits + culprit."""

    victims: Ids
    culprits: Ids
    codes: NDArray[np.intp]
    amounts: NDArray[np.uint64]
    told: NDArray[np.uint64]
    weights: NDArray[np.float64]

    def summed(self) -> "_Pairs":
        """One row for each pair, sorted."""
        order = np.argsort(self.codes)
        codes = self.codes[order]
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        return self._replace(
            codes=codes[starts],
            amounts=np.add.reduceat(self.amounts[order], starts),
            told=np.add.reduceat(self.told[order], starts),
            weights=np.add.reduceat(self.weights[order], starts),
        )

    def folded(self, heaviest: int, parents: Parents) -> "_Pairs":
        """All but the heaviest go up to the cgroup above the culprit, or to `OTHER_ID`."""
        small = np.argpartition(self.weights, len(self.weights) - heaviest)[: len(self.weights) - heaviest]
        victims, culprits = np.divmod(self.codes, len(self.culprits))
        above = parents.above(self.culprits)
        known = np.unique(np.concatenate([self.culprits, above.ids, [np.uint64(OTHER_ID)]]))
        own, up, other = (
            np.searchsorted(known, ids) for ids in (self.culprits, above.ids, np.array([OTHER_ID], dtype=np.uint64))
        )
        moved = culprits[small]
        is_inside = above.hold(moved, parents.places(self.victims)[victims[small]])
        first_code = victims * len(known)
        codes = first_code + own[culprits]
        goal = first_code[small] + np.where(is_inside, other, up[moved])
        has_grown = self.amounts[small] > self.told[small]
        # A pair that others become stays as it is: its growth is read from what was told of it.
        is_goal = np.zeros(len(self.victims) * len(known), dtype=np.bool_)
        is_goal[goal[has_grown]] = True
        goes = ~is_goal[codes[small]]
        small, goal, has_grown = small[goes], goal[goes], has_grown[goes]
        stays = np.ones(len(codes), dtype=np.bool_)
        stays[small] = False
        grown, was_told = small[has_grown], small[self.told[small] > 0]
        told = self.told[was_told]
        return _Pairs(
            self.victims,
            known,
            np.concatenate([codes[stays], goal[has_grown], first_code[was_told] + other]),
            np.concatenate([self.amounts[stays], self.amounts[grown] - self.told[grown], told]),
            np.concatenate([self.told[stays], np.zeros(len(grown), dtype=np.uint64), told]),
            np.concatenate([self.weights[stays], self.weights[grown], np.zeros(len(told))]),
        ).summed()
