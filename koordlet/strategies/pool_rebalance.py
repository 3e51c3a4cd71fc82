"""Rebalancing of capacity between pools of descending rank: up to a pool that needs it, else down to the lowest.

The rules are those of Meituan's LAR: the pools together hold all CPUs; a pool whose load leaves its band is resized;
what it lacks it takes from lower pools, the lowest first, and what it does not need goes to the lowest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuPool:
    """One pool; sizes are CPUs."""

    size: int
    used_millicores: float
    cap: int
    """CPUs that its pods have requested at most."""
    least: int
    """CPUs that it keeps even when others need more; 0 where it has no pods."""
    low_percent: int
    high_percent: int

    @property
    def desired(self) -> int:
        """Return its size, or the size that puts the load into the middle of the band if it is outside; within least
        and cap."""
        most = max(self.cap, self.least)
        load = self.used_millicores / 10 / self.size if self.size else float("inf") if self.used_millicores else 0.0
        if self.size and self.low_percent <= load <= self.high_percent:
            return min(max(self.size, self.least), most)
        middle = -(-self.used_millicores * 2 // (10 * (self.low_percent + self.high_percent)))
        return min(max(int(middle), self.least), most)


def rebalance(pools: Sequence[CpuPool]) -> list[int]:
    """Return the sizes after one tick, highest rank first; their sum is constant. The lowest pool has the rest.

    Where there are enough CPUs, every pool has its least: a pool with pods is never left without CPUs.
    """
    sizes = [pool.size for pool in pools]
    for rank, pool in enumerate(pools):
        _take(sizes, pools, rank, pool.least, range(len(pools) - 1, -1, -1))
    for rank, pool in enumerate(pools[:-1]):
        surplus = max(sizes[rank] - pool.desired, 0)
        sizes[rank] -= surplus
        sizes[-1] += surplus
        _take(sizes, pools, rank, pool.desired, range(len(pools) - 1, rank, -1))
    return sizes


def _take(sizes: list[int], pools: Sequence[CpuPool], rank: int, desired: int, donors: Iterable[int]) -> None:
    """Fill a pool up from the donors in turn, which keep their least."""
    for donor in donors:
        if donor != rank:
            taken = min(max(desired - sizes[rank], 0), max(sizes[donor] - pools[donor].least, 0))
            sizes[donor] -= taken
            sizes[rank] += taken
