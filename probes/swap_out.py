"""Writes to swap by reclaim of the whole node, shared out by who took pages while the node was short.

The kernel writes out the pages that were used least, of any cgroup, in kswapd or in any task that finds no page: it
is done for those who take pages. Programs count such writes under one identity, and each read divides what they made
others wait and what they wrote by the shares that `probes.memory` counts. Where no page was counted yet, that waits for
the next read, since pages are counted from the read on that finds the node short; where none is known then, or nothing
counts pages, it is the kernel's. What the writes themselves wait is the loss of no thread.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from api.frame import KERNEL_ID, OTHER_ID
from probes.page_shares import PageShares

SWAP_OUT_ID = 0xFFFF_FFFF_FFFF_FFFC
"""As in probes/c/identity.h; no table has it."""
MOST_PAIRS, LEAST_TAKERS = 8192, 16
"""Pairs of victim and taker that a read makes at most, and takers that have pairs of their own whatever the number of
victims; those who took fewest are `OTHER_ID` together."""

Ids = NDArray[np.uint64]


class Pairs(NamedTuple):
    """Rows of victim, culprit and nanoseconds."""

    victims: Ids
    culprits: Ids
    amounts_ns: NDArray[np.uint64]

    def with_more(self, more: "Pairs") -> "Pairs":
        """Both, one after the other."""
        if not len(more.victims):
            return self
        return Pairs(*(np.concatenate(both) for both in zip(self, more, strict=True)))


class SwapOut:
    """What swap-out cost and wrote since the start, by who is to bear it."""

    def __init__(self) -> None:
        self.takers: PageShares | None = None
        """None where nothing counts them."""
        self.own_ns: dict[int, int] = {}
        """What each victim waited behind what was written out for its own pages."""
        self.written_bytes: dict[int, int] = {}
        """Bytes by who took pages."""
        self._held_ns: dict[int, int] = {}
        self._held_bytes = self._told_bytes = 0
        self._has_waited = False
        self._gone: set[int] = set()
        """Those that are forgotten and still among the takers."""

    def named(self, pairs: Pairs, written_bytes: int) -> Pairs:
        """Return the pairs with those who took pages in place of `SWAP_OUT_ID`.

        `written_bytes` is all that was written out since the start.
        """
        if self._gone and self.takers is not None:
            self._gone.intersection_update(self.takers.pages)
        is_loss = pairs.victims != np.uint64(SWAP_OUT_ID)
        is_swap = is_loss & (pairs.culprits == np.uint64(SWAP_OUT_ID))
        for victim, amount in zip(pairs.victims[is_swap].tolist(), pairs.amounts_ns[is_swap].tolist(), strict=True):
            self._held_ns[victim] = self._held_ns.get(victim, 0) + amount
        self._held_bytes += written_bytes - self._told_bytes
        self._told_bytes = written_bytes
        kept = is_loss & ~is_swap
        left = pairs if kept.all() else Pairs(*(column[kept] for column in pairs))
        is_unknown = self.takers is not None and self.takers.is_empty
        has_swap_out = bool(self._held_ns) or self._held_bytes > 0
        waits = is_unknown and has_swap_out and not self._has_waited
        self._has_waited = is_unknown and has_swap_out
        if waits or not has_swap_out:
            return left
        return left.with_more(self._share_out())

    def forget(self, ids: Ids) -> None:
        """Drop cgroups that are gone."""
        taking = {} if self.takers is None else self.takers.pages
        for gone in ids.tolist():
            if gone in taking:
                self._gone.add(gone)
            for amounts in (self.own_ns, self.written_bytes, self._held_ns):
                amounts.pop(gone, None)

    def _share_out(self) -> Pairs:
        takers, shares, lumped = self._shares(len(self._held_ns))
        victims = np.fromiter(self._held_ns.keys(), np.uint64, len(self._held_ns))
        amounts = np.fromiter(self._held_ns.values(), np.uint64, len(self._held_ns))
        written = parts(np.array([self._held_bytes], dtype=np.uint64), shares)
        for taker, amount in zip(takers.tolist(), written.tolist(), strict=True):
            if amount and taker not in self._gone:
                self.written_bytes[taker] = self.written_bytes.get(taker, 0) + amount
        self._held_ns, self._held_bytes = {}, 0
        blamed = parts(amounts[:, None], shares)
        is_own = victims[:, None] == takers
        own_ns = np.where(is_own, blamed, np.uint64(0)).sum(axis=1)
        if lumped:
            own_parts = np.array([lumped.get(victim, 0.0) for victim in victims.tolist()])
            of_others = blamed[:, takers == np.uint64(OTHER_ID)]
            among = np.minimum((amounts * own_parts).astype(np.uint64), of_others[:, 0])
            of_others[:, 0] -= among
            blamed[:, takers == np.uint64(OTHER_ID)] = of_others
            own_ns += among
        for victim, amount in zip(victims.tolist(), own_ns.tolist(), strict=True):
            if amount:
                self.own_ns[victim] = self.own_ns.get(victim, 0) + amount
        others = ~is_own & (blamed > 0)
        rows, columns = np.nonzero(others)
        return Pairs(victims[rows], takers[columns], blamed[others])

    def _shares(self, victims: int) -> tuple[Ids, NDArray[np.float64], dict[int, float]]:
        """Takers and their parts of the pages, the biggest last, and the parts of those who are `OTHER_ID` together."""
        pages = {} if self.takers is None or self.takers.is_empty else self.takers.pages
        if not pages:
            return np.array([KERNEL_ID], dtype=np.uint64), np.ones(1), {}
        whole = sum(pages.values())
        ordered = sorted(((taken / whole, taker) for taker, taken in pages.items() if taken > 0), reverse=True)
        most = max(MOST_PAIRS // max(victims, 1), LEAST_TAKERS)
        shares, lumped = ({taker: part for part, taker in each} for each in (ordered[:most], ordered[most:]))
        if lumped:
            shares[OTHER_ID] = shares.get(OTHER_ID, 0.0) + sum(lumped.values())
        rising = sorted(shares.items(), key=lambda share: share[1])
        return np.array([taker for taker, _ in rising], dtype=np.uint64), np.array([part for _, part in rising]), lumped


def parts(amounts: NDArray[np.uint64], shares: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Share out each amount along the last axis, of length 1, in whole numbers that sum to it exactly."""
    upto = np.minimum((amounts * np.cumsum(shares)).astype(np.uint64), amounts)
    upto[..., -1] = amounts[..., 0]
    return np.diff(upto, axis=-1, prepend=np.uint64(0))
