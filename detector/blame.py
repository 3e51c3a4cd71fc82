"""Growth of victim-culprit tables between two frames, fast enough for thousands of pairs a tick."""

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID, Frame, Table
from detector.arrays import Floats, Ids
from detector.ring import positions


class Blame:
    """Rows by victim and culprit; amounts in seconds per second, all above zero."""

    __slots__ = ("_owners", "_starts", "amounts", "culprits", "victims")

    def __init__(self, victims: Ids, culprits: Ids, amounts: Floats) -> None:
        """Take rows that are sorted by victim, then culprit."""
        self.victims, self.culprits, self.amounts = victims, culprits, amounts
        self._starts = np.flatnonzero(np.concatenate([[True], victims[1:] != victims[:-1]])[: len(victims)])
        self._owners = victims[self._starts]

    def span(self, victims: Ids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """First row of each victim and the row after its last."""
        return np.searchsorted(self.victims, victims, "left"), np.searchsorted(self.victims, victims, "right")

    def without(self, rows: NDArray[np.bool_]) -> "Blame":
        """The table without those rows."""
        return Blame(self.victims[~rows], self.culprits[~rows], self.amounts[~rows])

    def scaled(self, parts: Floats) -> "Blame":
        """The table with each row times its part; those of which nothing is left are gone."""
        kept = parts > 0
        return Blame(self.victims[kept], self.culprits[kept], (self.amounts * parts)[kept])

    def moved(self, amounts: Floats, culprit: int) -> "Blame":
        """The table with a part of each row, given by `amounts`, on another culprit."""
        if not len(self._owners):
            return self
        # A victim's row of that culprit stands, or belongs, after those of lesser ids.
        place = self._starts + np.add.reduceat((self.culprits < np.uint64(culprit)).astype(np.intp), self._starts)
        near = np.minimum(place, len(self.victims) - 1)
        stands = (place == near) & (self.victims[near] == self._owners) & (self.culprits[near] == np.uint64(culprit))
        sums, left = np.add.reduceat(amounts, self._starts), self.amounts - amounts
        left[place[stands]] += sums[stands]
        fresh = ~stands & (sums > 0)
        victims = np.insert(self.victims, place[fresh], self._owners[fresh])
        culprits = np.insert(self.culprits, place[fresh], np.uint64(culprit))
        both = np.insert(left, place[fresh], sums[fresh])
        kept = both > 0
        return Blame(victims[kept], culprits[kept], both[kept])

    def sums(self, victims: Ids, *, named: bool = False) -> Floats:
        """Sum of each victim's blame; with `named`, without the folded pairs."""
        if not len(self._owners):
            return np.zeros(len(victims))
        amounts = np.where(self.culprits == OTHER_ID, 0.0, self.amounts) if named else self.amounts
        place, found = self._place(victims)
        return np.where(found, np.add.reduceat(amounts, self._starts)[place], 0.0)

    def biggest(self, victims: Ids) -> tuple[Ids, Floats]:
        """The culprit with most of each victim's blame, and its amount; 0 and 0.0 without any blame."""
        if not len(self._owners):
            return np.zeros(len(victims), dtype=np.uint64), np.zeros(len(victims))
        peaks = np.maximum.reduceat(self.amounts, self._starts)
        lengths = np.diff(np.append(self._starts, len(self.victims)))
        rows = np.flatnonzero(self.amounts == np.repeat(peaks, lengths))
        firsts = rows[np.searchsorted(rows, self._starts)]
        place, found = self._place(victims)
        return (
            np.where(found, self.culprits[firsts][place], np.uint64(0)),
            np.where(found, peaks[place], 0.0),
        )

    def against(self, victims: Ids, culprits: Ids) -> Floats:
        """Blame of each victim, all different, on one culprit each."""
        amounts = np.zeros(len(victims))
        if not len(victims):
            return amounts
        place, known = positions(victims, self.victims)
        hit = known & (culprits[place] == self.culprits)
        amounts[place[hit]] = self.amounts[hit]
        return amounts

    def _place(self, victims: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        place = np.minimum(np.searchsorted(self._owners, victims), len(self._owners) - 1)
        return place, self._owners[place] == victims


def blame_between(older: Frame, newer: Frame, table: str) -> Blame:
    """Return the blame between two frames.

    Pairs that went backwards count from zero: they were folded, and came again. What they had before is `OTHER_ID`'s
    by then and no growth, as that of pairs that are gone.
    """
    column = f"{table}_ns"
    victims, culprits, now = _by_pair(newer.tables[table], column)
    old_victims, old_culprits, then = _by_pair(older.tables[table], column)
    if not (np.array_equal(victims, old_victims) and np.array_equal(culprits, old_culprits)):
        then = _matched(victims, culprits, old_victims, old_culprits, then)
    others = culprits == np.uint64(OTHER_ID)
    again = (then > now) & ~others
    if again.any():
        starts = np.flatnonzero(np.concatenate([[True], victims[1:] != victims[:-1]]))
        folded = np.add.reduceat(np.where(again, then, np.uint64(0)), starts)
        lengths = np.diff(np.append(starts, len(victims)))
        then = np.where(again, np.uint64(0), then) + np.where(others, np.repeat(folded, lengths), np.uint64(0))
    grown = now - np.minimum(then, now)
    rows = np.flatnonzero(grown)
    seconds = (newer.monotonic_ns - older.monotonic_ns) / 1e9
    return Blame(victims[rows], culprits[rows], grown[rows].astype(np.float64) * (1e-9 / seconds))


def _by_pair(table: Table, column: str) -> tuple[Ids, Ids, NDArray[np.uint64]]:
    victims, culprits = table.ids, table.keys["culprit"].astype(np.uint64, copy=False)
    amounts = table.columns[column].astype(np.uint64, copy=False)
    ahead, behind = victims[1:], victims[:-1]
    if not bool(((ahead > behind) | ((ahead == behind) & (culprits[1:] > culprits[:-1]))).all()):
        order = np.lexsort((culprits, victims))
        return victims[order], culprits[order], amounts[order]
    return victims, culprits, amounts


def _matched(
    victims: Ids, culprits: Ids, old_victims: Ids, old_culprits: Ids, then: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Earlier amounts of the later pairs; 0 for new ones.

    A table that grows too long folds its smallest pairs into `OTHER_ID`: it takes over their earlier amounts.
    """
    if not len(victims) or not len(old_victims):
        return np.zeros(len(victims), dtype=np.uint64)
    firsts = np.concatenate([[True], victims[1:] != victims[:-1]])
    known_victims, rows = victims[firsts], np.cumsum(firsts) - 1
    known_culprits, columns = np.unique(culprits, return_inverse=True)
    codes = rows * len(known_culprits) + columns
    old_rows, here = _codes(old_victims, known_victims)
    old_columns, there = _codes(old_culprits, known_culprits)
    old_codes = old_rows * len(known_culprits) + old_columns
    place = np.minimum(np.searchsorted(codes, old_codes), len(codes) - 1)
    both = here & there & (codes[place] == old_codes)
    earlier = np.zeros(len(victims), dtype=np.uint64)
    earlier[place[both]] = then[both]
    folded = np.zeros(len(known_victims), dtype=np.uint64)
    np.add.at(folded, old_rows[here & ~both], then[here & ~both])
    others = culprits == np.uint64(OTHER_ID)
    earlier[others] += folded[rows[others]]
    return earlier


def _codes(ids: Ids, known: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Place of each id among the known ones, valid where the second array is true; only distinct ids are looked up."""
    distinct, inverse = np.unique(ids, return_inverse=True)
    place = np.minimum(np.searchsorted(known, distinct), len(known) - 1)
    return place[inverse], (known[place] == distinct)[inverse]
