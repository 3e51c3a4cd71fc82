"""Victim-culprit totals kept in user space: the kernel's map is drained each read, so it never fills with old pairs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID, Table
from probes.parents import Parents

Ids = NDArray[np.uint64]


_KEPT_RATIO = 0.5 ** (1 / 30)
"""Part of a pair's weight that one table leaves: with one a second, half of it after 30 seconds."""
_LEVELS_AT_ONCE = 3
"""Levels of the hierarchy that a pair may rise before one table, until it is `OTHER_ID`'s."""
_MOST_FORGOTTEN = 8192
"""Victims remembered as dropped while no table is made."""
_BETWEEN_TABLES = 4
"""Times as many pairs as a table has are collected before it."""


class PairLedger:
    """Cumulative amounts for each (victim, culprit), at most `max_pairs` of them in a table.

    When there are more, the pairs of all victims with the least in the last half minute or so are folded: what they
    grew by goes to the cgroup above the culprit, so that hundreds of small ones get one name, or to
    `OTHER_ID` where the victim is in that cgroup too. What a table told of them before is `OTHER_ID`'s, whose growth
    readers do not count where pairs are gone; no amount is lost. What was large long ago does not keep the place of a
    newcomer.

    Pairs that a table told go when the next one is made and never between the two, whatever number of additions there
    is: one that came again would not be gone.
    """

    def __init__(self, max_pairs: int = 8192) -> None:
        self._max_pairs = max_pairs
        self.parents = Parents()
        """Of the cgroups that occur here; without them all that is folded is `OTHER_ID`'s."""
        self._pairs = _Pairs.none()
        self._forgotten: Ids = np.empty(0, dtype=np.uint64)
        """Victims that were dropped since the last table: the next addition may still have some of theirs."""

    def add(self, victims: Ids, culprits: Ids, amounts: NDArray[np.uint64]) -> None:
        """Add amounts pair by pair; all three have shape (n,)."""
        if not len(victims):
            return
        pairs = self._pairs.with_more(victims, culprits, amounts)
        if len(self._forgotten):
            pairs = pairs.without_victims(self._forgotten)
        # Of pairs that were told only the growth is folded here: how many are told is bounded by their table.
        self._pairs = self._fitted(pairs, _BETWEEN_TABLES * self._max_pairs, keeps_told=True)

    @property
    def collected(self) -> int:
        """Number of pairs that are kept at present."""
        return len(self._pairs.codes)

    def forget(self, ids: Ids) -> None:
        """Drop every pair whose victim is among `ids`, and those that come before the next table: a victim that is
        forgotten before each table has none. What a gone culprit did to the living stays."""
        self._pairs = self._pairs.without_victims(ids)
        earlier = self._forgotten if len(self._forgotten) < _MOST_FORGOTTEN else self._forgotten[:0]
        self._forgotten = np.union1d(earlier, ids)

    def table(self, column: str) -> Table:
        """All pairs as a table keyed by `cgroup` (victim) and `culprit`; what is folded later counts them as told."""
        pairs = self._fitted(self._pairs, self._max_pairs, keeps_told=False)
        self._pairs = pairs._replace(told=pairs.amounts, weights=pairs.weights * _KEPT_RATIO)
        self._forgotten = self._forgotten[:0]
        victims, culprits = pairs.ids()
        return Table({"cgroup": victims, "culprit": culprits}, {column: pairs.amounts})

    def _fitted(self, pairs: "_Pairs", most: int, *, keeps_told: bool) -> "_Pairs":
        for level in range(_LEVELS_AT_ONCE):
            if len(pairs.codes) <= most:
                break
            parents = Parents() if level == _LEVELS_AT_ONCE - 1 else self.parents
            pairs = pairs.folded(self._max_pairs // 2, parents, keeps_told=keeps_told)
        return pairs


class _Pairs(NamedTuple):
    """Rows of a ledger, by numbers of their victims and culprits: `codes` are victim x number of culprits + culprit.

    `told` is what the last table had of the amounts; by the weights, which fade, pairs are folded.
    """

    victims: Ids
    culprits: Ids
    codes: NDArray[np.intp]
    amounts: NDArray[np.uint64]
    told: NDArray[np.uint64]
    weights: NDArray[np.float64]

    @classmethod
    def none(cls) -> "_Pairs":
        """No rows."""
        ids = np.empty(0, dtype=np.uint64)
        return cls(ids, ids, np.empty(0, dtype=np.intp), ids, ids, np.empty(0))

    def ids(self) -> tuple[Ids, Ids]:
        """Victim and culprit of each row."""
        if not len(self.codes):
            return self.victims[:0], self.culprits[:0]
        victims, culprits = np.divmod(self.codes, len(self.culprits))
        return self.victims[victims], self.culprits[culprits]

    def with_more(self, victims: Ids, culprits: Ids, amounts: NDArray[np.uint64]) -> "_Pairs":
        """Add amounts of which no table has told; where a cgroup is new, those that do not occur lose their numbers."""
        # Ids become small numbers first: sorting those is many times faster.
        victim_codes, culprit_codes = _numbers(self.victims, victims), _numbers(self.culprits, culprits)
        if victim_codes is None or culprit_codes is None:
            return self._renumbered(victims, culprits).with_more(victims, culprits, amounts)
        return self._replace(
            codes=np.concatenate([self.codes, victim_codes * len(self.culprits) + culprit_codes]),
            amounts=np.concatenate([self.amounts, amounts.astype(np.uint64)]),
            told=np.concatenate([self.told, np.zeros(len(victims), dtype=np.uint64)]),
            weights=np.concatenate([self.weights, amounts.astype(np.float64)]),
        ).summed()

    def _renumbered(self, victims: Ids, culprits: Ids) -> "_Pairs":
        """The same rows, with numbers for these cgroups too and for no others that do not occur."""
        mine = np.divmod(self.codes, max(len(self.culprits), 1))
        known_victims, victim_codes = _with_new(self.victims, mine[0], victims)
        known_culprits, culprit_codes = _with_new(self.culprits, mine[1], culprits)
        codes = victim_codes * len(known_culprits) + culprit_codes
        return self._replace(victims=known_victims, culprits=known_culprits, codes=codes)

    def without_victims(self, ids: Ids) -> "_Pairs":
        """All rows but those of some victims."""
        if not len(self.codes):
            return self
        kept = ~np.isin(self.victims, ids)[self.codes // len(self.culprits)]
        return self._replace(
            codes=self.codes[kept], amounts=self.amounts[kept], told=self.told[kept], weights=self.weights[kept]
        )

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

    def folded(self, heaviest: int, parents: Parents, *, keeps_told: bool) -> "_Pairs":
        """What all but the heaviest grew by goes up to the cgroup above the culprit, or to `OTHER_ID`.

        What was told of them goes to `OTHER_ID`, or with `keeps_told` stays where it is.
        """
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
        left = codes[was_told] if keeps_told else first_code[was_told] + other
        return _Pairs(
            self.victims,
            known,
            np.concatenate([codes[stays], goal[has_grown], left]),
            np.concatenate([self.amounts[stays], self.amounts[grown] - self.told[grown], told]),
            np.concatenate([self.told[stays], np.zeros(len(grown), dtype=np.uint64), told]),
            np.concatenate([self.weights[stays], self.weights[grown], np.zeros(len(told))]),
        ).summed()


def _with_new(known: Ids, occurring: NDArray[np.intp], ids: Ids) -> tuple[Ids, NDArray[np.intp]]:
    """Those of the known ids whose numbers occur, with the others, sorted; and the new number of each that occurs."""
    occurs = np.zeros(len(known), dtype=np.bool_)
    occurs[occurring] = True
    both = np.union1d(known[occurs], ids)
    return both, np.searchsorted(both, known)[occurring]


def _numbers(known: Ids, ids: Ids) -> NDArray[np.intp] | None:
    """Place of each id among the known ones, which are sorted; None where one of them is not known."""
    distinct, inverse = np.unique(ids, return_inverse=True)
    place = np.searchsorted(known, distinct)
    if len(distinct) and (place[-1] == len(known) or (known[place] != distinct).any()):
        return None
    return np.asarray(place[inverse], dtype=np.intp)
