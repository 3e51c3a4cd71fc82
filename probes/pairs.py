"""Victim-culprit totals kept in user space: the kernel's map is drained each read, so it never fills with old pairs."""

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID, Table

Ids = NDArray[np.uint64]


_KEPT_RATIO = 0.5 ** (1 / 30)
"""Part of a pair's weight that one addition leaves: with one a second, half of it after 30 seconds."""


class PairLedger:
    """Cumulative amounts for each (victim, culprit), at most `max_pairs` of them.

    When there are more, the pairs of all victims with the least in the last half minute or so are folded into culprit
    `OTHER_ID`; no amount is lost. What was large long ago does not keep the place of a newcomer.
    """

    def __init__(self, max_pairs: int = 8192) -> None:
        self._max_pairs = max_pairs
        self._victims: Ids = np.empty(0, dtype=np.uint64)
        self._culprits: Ids = np.empty(0, dtype=np.uint64)
        self._amounts: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._weights: NDArray[np.float64] = np.empty(0)
        """Amounts that fade, by which pairs are folded."""

    def add(self, victims: Ids, culprits: Ids, amounts: NDArray[np.uint64]) -> None:
        """Add amounts pair by pair; all three have shape (n,)."""
        if not len(victims):
            return
        self._sum(
            np.concatenate([self._victims, victims]),
            np.concatenate([self._culprits, culprits]),
            np.concatenate([self._amounts, amounts.astype(np.uint64)]),
            np.concatenate([self._weights * _KEPT_RATIO, amounts.astype(np.float64)]),
        )
        if len(self._victims) > self._max_pairs:
            self._fold()

    def _sum(self, victims: Ids, culprits: Ids, amounts: NDArray[np.uint64], weights: NDArray[np.float64]) -> None:
        """Keep one row for each pair. Ids become small numbers first: sorting those is many times faster."""
        known_victims, victim_codes = np.unique(victims, return_inverse=True)
        known_culprits, culprit_codes = np.unique(culprits, return_inverse=True)
        codes = victim_codes * len(known_culprits) + culprit_codes
        pairs, rows = np.unique(codes, return_inverse=True)
        totals = np.zeros(len(pairs), dtype=np.uint64)
        np.add.at(totals, rows, amounts)
        self._victims = known_victims[pairs // len(known_culprits)]
        self._culprits = known_culprits[pairs % len(known_culprits)]
        self._amounts = totals
        self._weights = np.bincount(rows, weights=weights, minlength=len(pairs)).astype(np.float64)

    def _fold(self) -> None:
        """Halve the ledger: the lighter half of the pairs becomes its victims' `OTHER_ID`."""
        small = np.argsort(self._weights)[: len(self._amounts) - self._max_pairs // 2]
        culprits = self._culprits.copy()
        culprits[small] = OTHER_ID
        self._sum(self._victims, culprits, self._amounts, self._weights)

    def forget(self, ids: Ids) -> None:
        """Drop every pair whose victim is among `ids`; what a gone culprit did to the living stays."""
        if len(self._victims):
            keep = ~np.isin(self._victims, ids)
            self._victims, self._culprits = self._victims[keep], self._culprits[keep]
            self._amounts, self._weights = self._amounts[keep], self._weights[keep]

    def table(self, column: str) -> Table:
        """All pairs as a table keyed by `cgroup` (victim) and `culprit`."""
        return Table({"cgroup": self._victims, "culprit": self._culprits}, {column: self._amounts})
