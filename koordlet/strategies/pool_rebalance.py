"""How capacity flows between pools of descending rank: up to who needs it, down to the lowest when it does not.

The rules are those of Meituan's LAR: all pools together have everything; a pool whose load leaves its band is sized
anew; what it lacks it takes from lower pools, the lowest first, what it does not need goes to the lowest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuPool:
    """One pool; sizes are CPUs."""

    size: int
    used_millicores: float
    cap: int
    """Most that its pods have asked for."""
    least: int
    """What it keeps even when others need more; 0 where it has no pods."""
    low_percent: int
    high_percent: int

    @property
    def wanted(self) -> int:
        """Size with the load in the middle of the band if it is outside, as it is inside; within least and cap."""
        most = max(self.cap, self.least)
        load = self.used_millicores / 10 / self.size if self.size else float("inf") if self.used_millicores else 0.0
        if self.size and self.low_percent <= load <= self.high_percent:
            return min(max(self.size, self.least), most)
        middle = -(-self.used_millicores * 2 // (10 * (self.low_percent + self.high_percent)))
        return min(max(int(middle), self.least), most)


def rebalance(pools: Sequence[CpuPool]) -> list[int]:
    """Sizes after one tick, highest rank first; their sum stays. The lowest pool has what the others leave.

    Where there is enough for it, every pool has its least: none with pods is ever left without CPUs.
    """
    sizes = [pool.size for pool in pools]
    for rank, pool in enumerate(pools):
        _take(sizes, pools, rank, pool.least, range(len(pools) - 1, -1, -1))
    for rank, pool in enumerate(pools[:-1]):
        surplus = max(sizes[rank] - pool.wanted, 0)
        sizes[rank] -= surplus
        sizes[-1] += surplus
        _take(sizes, pools, rank, pool.wanted, range(len(pools) - 1, rank, -1))
    return sizes


def _take(sizes: list[int], pools: Sequence[CpuPool], rank: int, wanted: int, donors: Iterable[int]) -> None:
    """Fill a pool up from the donors in turn, who keep their least."""
    for donor in donors:
        if donor != rank:
            taken = min(max(wanted - sizes[rank], 0), max(sizes[donor] - pools[donor].least, 0))
            sizes[donor] -= taken
            sizes[rank] += taken
