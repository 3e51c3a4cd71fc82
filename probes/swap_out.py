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
LEAST_SHARE = 0.01
"""Of the pages taken; smaller takers are `OTHER_ID` together."""

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
        for gone in ids.tolist():
            self._gone.add(gone)
            for amounts in (self.own_ns, self.written_bytes, self._held_ns):
                amounts.pop(gone, None)

    def _share_out(self) -> Pairs:
        takers, shares = self._shares()
        self._gone &= set(takers.tolist())
        victims = np.fromiter(self._held_ns.keys(), np.uint64, len(self._held_ns))
        amounts = np.fromiter(self._held_ns.values(), np.uint64, len(self._held_ns))
        written = parts(np.array([self._held_bytes], dtype=np.uint64), shares)
        for taker, amount in zip(takers.tolist(), written.tolist(), strict=True):
            if amount and taker not in self._gone:
                self.written_bytes[taker] = self.written_bytes.get(taker, 0) + amount
        self._held_ns, self._held_bytes = {}, 0
        victims, takers = np.repeat(victims, len(shares)), np.tile(takers, len(victims))
        blamed = parts(amounts[:, None], shares).ravel()
        is_own = victims == takers
        for victim, amount in zip(victims[is_own].tolist(), blamed[is_own].tolist(), strict=True):
            self.own_ns[victim] = self.own_ns.get(victim, 0) + amount
        others = ~is_own & (blamed > 0)
        return Pairs(victims[others], takers[others], blamed[others])

    def _shares(self) -> tuple[Ids, NDArray[np.float64]]:
        """Takers and their parts of the pages, the biggest last."""
        pages = {} if self.takers is None or self.takers.is_empty else self.takers.pages
        if not pages:
            return np.array([KERNEL_ID], dtype=np.uint64), np.ones(1)
        whole = sum(pages.values())
        shares = {taker: taken / whole for taker, taken in pages.items() if taken >= whole * LEAST_SHARE}
        if (rest := 1.0 - sum(shares.values())) > 1e-9:
            shares[OTHER_ID] = shares.get(OTHER_ID, 0.0) + rest
        ordered = sorted(shares.items(), key=lambda share: share[1])
        return np.array([taker for taker, _ in ordered], dtype=np.uint64), np.array([part for _, part in ordered])


def parts(amounts: NDArray[np.uint64], shares: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Share out each amount along the last axis, of length 1, in whole numbers that sum to it exactly."""
    upto = np.minimum((amounts * np.cumsum(shares)).astype(np.uint64), amounts)
    upto[..., -1] = amounts[..., 0]
    return np.diff(upto, axis=-1, prepend=np.uint64(0))
