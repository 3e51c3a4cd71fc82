"""Who took pages from the node while it was short of them: what global reclaim does is done for these."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from api.frame import OTHER_ID


class PageShares:
    """Pages taken lately, by cgroup: counts lose half their weight each round, which covers longer stalls."""

    def __init__(self) -> None:
        self._pages: dict[int, float] = {}

    def add(self, takers: NDArray[np.uint64], pages: NDArray[np.uint64]) -> None:
        """Start a round with the pages taken since the last one, shapes (n,)."""
        faded = {taker: amount / 2 for taker, amount in self._pages.items() if amount >= 2}
        for taker, amount in zip(takers.tolist(), pages.tolist(), strict=True):
            faded[taker] = faded.get(taker, 0.0) + amount
        self._pages = faded

    @property
    def is_empty(self) -> bool:
        """True while no taker of pages is known."""
        return not any(self._pages.values())

    @property
    def pages(self) -> Mapping[int, float]:
        """Pages by cgroup, faded."""
        return self._pages

    def split(self, amount_ns: int) -> dict[int, int]:
        """Share out `amount_ns` by pages; the parts sum to it exactly. `OTHER_ID` takes it where no page is known."""
        total = sum(self._pages.values())
        if not total:
            return {OTHER_ID: amount_ns}
        parts = {taker: int(amount_ns * amount / total) for taker, amount in self._pages.items()}
        largest = max(parts, key=parts.__getitem__)
        parts[largest] += amount_ns - sum(parts.values())
        return {taker: part for taker, part in parts.items() if part}
