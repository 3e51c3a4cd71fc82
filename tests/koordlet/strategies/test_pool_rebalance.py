import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.strategies.pool_rebalance import CpuPool, rebalance


def pool(size: int, used: float, low: int, high: int, cap: int = 100, least: int = 1) -> CpuPool:
    """A pool with its usage in cores."""
    return CpuPool(size, used * 1000, cap, least, low, high)


def three(first: CpuPool | None = None, second: CpuPool | None = None, third: CpuPool | None = None) -> list[CpuPool]:
    """LAR's three pools on 40 CPUs, each within its band."""
    return [first or pool(10, 4, 30, 50), second or pool(10, 5, 45, 60), third or pool(20, 12, 50, 80)]


@pytest.mark.parametrize(
    ("pools", "sizes"),
    [
        pytest.param(three(), [10, 10, 20], id="all-within-their-bands"),
        pytest.param(three(pool(10, 5, 30, 50), pool(10, 4.5, 45, 60)), [10, 10, 20], id="the-edges-are-within"),
        pytest.param(three(pool(10, 6, 30, 50)), [15, 10, 15], id="a-loaded-pool-takes-from-the-lowest"),
        pytest.param(three(pool(10, 12, 30, 50)), [30, 9, 1], id="then-from-the-next-and-leaves-the-least"),
        pytest.param(three(pool(10, 2, 30, 50)), [5, 10, 25], id="an-idle-pool-gives-to-the-lowest"),
        pytest.param(three(second=pool(10, 9, 45, 60)), [10, 18, 12], id="the-middle-takes-from-below-alone"),
        pytest.param(
            [pool(10, 5, 30, 50), pool(10, 30, 45, 60), pool(0, 0, 50, 80, least=0)], [10, 10, 0], id="nobody-gives-up"
        ),
        pytest.param(three(pool(10, 6, 30, 50, cap=11)), [11, 10, 19], id="no-more-than-was-asked-for"),
        pytest.param(three(pool(10, 0, 30, 50, cap=0, least=0)), [0, 10, 30], id="a-pool-without-pods-has-nothing"),
        pytest.param(
            [pool(0, 2, 30, 50), pool(0, 0, 45, 60, cap=0, least=0), pool(40, 0, 50, 80)], [5, 0, 35], id="first-pod"
        ),
        pytest.param(
            [pool(30, 12, 30, 50), pool(10, 5, 45, 60), pool(0, 0, 50, 80)], [30, 9, 1], id="the-least-comes-first"
        ),
        pytest.param(
            [pool(8, 5, 30, 50), pool(2, 1.9, 45, 60), pool(0, 0, 50, 80, least=0)], [9, 1, 0], id="rank-goes-first"
        ),
    ],
)
def test_flow(pools: list[CpuPool], sizes: list[int]) -> None:
    assert rebalance(pools) == sizes


@st.composite
def some_pools(draw: st.DrawFn) -> list[CpuPool]:
    pools = []
    for _ in range(draw(st.integers(2, 5))):
        least = draw(st.integers(0, 2))
        size = draw(st.integers(0, 64))
        low = draw(st.integers(1, 90))
        high = draw(st.integers(low + 1, 100))
        pools.append(CpuPool(size, draw(st.floats(0, 1e5)), draw(st.integers(0, 64)), least, low, high))
    return pools


@given(some_pools())
def test_nothing_is_lost_and_everybody_keeps_the_least(pools: list[CpuPool]) -> None:
    sizes = rebalance(pools)
    assert sum(sizes) == sum(pool.size for pool in pools)
    if sum(sizes) >= sum(pool.least for pool in pools):
        assert all(size >= pool.least for pool, size in zip(pools, sizes, strict=True))
    for pool, size in list(zip(pools, sizes, strict=True))[:-1]:
        assert size <= max(pool.cap, pool.least)


@given(some_pools())
def test_lower_pools_never_cost_a_higher_one(pools: list[CpuPool]) -> None:
    sizes = rebalance(pools)
    for rank, pool in enumerate(pools[:-1]):
        below = sum(max(sizes[lower] - pools[lower].least, 0) for lower in range(rank + 1, len(pools)))
        assert sizes[rank] >= pool.desired or below == 0, "it lacks while a lower pool has more than its least"
