"""Victim-culprit totals kept in user space: the kernel's map is drained each read, so it never fills with old pairs."""

import numpy as np
from numpy.typing import NDArray

from api.frame import Table

_PAIR = np.dtype([("victim", np.uint64), ("culprit", np.uint64)])


class PairLedger:
    """Cumulative amounts for each (victim, culprit); victims and culprits that are gone are dropped on request."""

    def __init__(self) -> None:
        self._pairs = np.empty(0, dtype=_PAIR)
        self._amounts = np.empty(0, dtype=np.uint64)

    def add(
        self, victims: NDArray[np.uint64], culprits: NDArray[np.uint64], amounts: NDArray[np.uint64]
    ) -> None:
        """Add amounts pair by pair; all three have shape (n,)."""
        if not len(victims):
            return
        fresh = np.empty(len(victims), dtype=_PAIR)
        fresh["victim"], fresh["culprit"] = victims, culprits
        pairs, inverse = np.unique(np.concatenate([self._pairs, fresh]), return_inverse=True)
        totals = np.zeros(len(pairs), dtype=np.uint64)
        np.add.at(totals, inverse, np.concatenate([self._amounts, amounts.astype(np.uint64)]))
        self._pairs, self._amounts = pairs, totals

    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Drop every pair whose victim is among `ids`; what a gone culprit did to the living stays."""
        if len(self._pairs):
            keep = ~np.isin(self._pairs["victim"], ids)
            self._pairs, self._amounts = self._pairs[keep], self._amounts[keep]

    def table(self, column: str) -> Table:
        """All pairs as a table keyed by `cgroup` (victim) and `culprit`."""
        keys = {"cgroup": self._pairs["victim"].copy(), "culprit": self._pairs["culprit"].copy()}
        return Table(keys, {column: self._amounts.copy()})
