"""Amounts over NUMA nodes, statuses, scores and amplification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.numa.placement import (
    NumaStatus,
    allocation_score,
    amplified,
    divide,
    exclusive_violation,
    numa_status,
)
from scheduler.numa.topology import NumaStrategy

MOST, LEAST, EVEN = NumaStrategy


@pytest.mark.parametrize(
    ("strategy", "request_amount", "free", "granule", "parts"),
    [
        pytest.param(MOST, 10, (8, 8), 1, {0: 8, 1: 2}, id="most"),
        pytest.param(EVEN, 10, (8, 8), 1, {0: 5, 1: 5}, id="even"),
        pytest.param(EVEN, 10, (2, 8), 1, {0: 2, 1: 8}, id="even-first-node-short"),
        pytest.param(EVEN, 10, (8, 2), 1, {1: 2, 0: 8}, id="even-second-node-short"),
        pytest.param(EVEN, 6, (8, 8), 2, {0: 4, 1: 2}, id="even-by-granule"),
        pytest.param(LEAST, 17, (8, 8), 1, None, id="too-much"),
        pytest.param(LEAST, 0, (8, 8), 1, {}, id="nothing"),
    ],
)
def test_divide(
    strategy: NumaStrategy,
    request_amount: int,
    free: tuple[int, int],
    granule: int,
    parts: dict[int, int] | None,
) -> None:
    assert divide(request_amount, dict(enumerate(free)), 3, strategy, granule) == parts


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=4),
    st.integers(0, 220),
    st.sampled_from(list(NumaStrategy)),
)
def test_divide_never_exceeds_what_is_free(free: list[int], request_amount: int, strategy: NumaStrategy) -> None:
    parts = divide(request_amount, dict(enumerate(free)), (1 << len(free)) - 1, strategy)
    assert (parts is None) == (request_amount > sum(free))
    if parts is not None:
        assert sum(parts.values()) == request_amount
        assert all(0 < part <= free[node] for node, part in parts.items())


def test_status_and_exclusive_wish() -> None:
    status = numa_status([0b0001, 0b0110, 0b0010], range(4))
    assert status == {0: NumaStatus.SINGLE, 1: NumaStatus.SHARED, 2: NumaStatus.SHARED, 3: NumaStatus.IDLE}
    assert exclusive_violation(0b0010, status)
    assert not exclusive_violation(0b1001 & 0b1000, status)
    assert exclusive_violation(0b1001, status)
    assert not exclusive_violation(0b1100, status)


@pytest.mark.parametrize(
    ("strategy", "requested", "score"),
    [
        pytest.param(LEAST, {"cpu": 4000, "memory": 50}, 55, id="least"),
        pytest.param(MOST, {"cpu": 4000, "memory": 50}, 45, id="most"),
        pytest.param(LEAST, {"cpu": 11000, "memory": 50}, 25, id="over-the-total"),
        pytest.param(MOST, {}, 0, id="nothing-requested"),
    ],
)
def test_score(strategy: NumaStrategy, requested: dict[str, int], score: int) -> None:
    allocatable = {"cpu": 10000, "memory": 100}
    assert allocation_score(requested, allocatable, {"cpu": 1, "memory": 1}, strategy) == score


@pytest.mark.parametrize(
    ("amount", "ratio", "expected"),
    [(10000, 1.5, 15000), (10001, 1.5, 15002), (7, 1.0, 7), (7, 0.5, 7), (100, 1.1, 110)],
)
def test_amplified(amount: int, ratio: float, expected: int) -> None:
    assert amplified(amount, ratio) == expected
