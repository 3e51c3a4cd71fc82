"""Published vectors of the fairness algorithm, and what must hold for any claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.quota.fairness import Minimum, QuotaShare, fair_runtimes, largest_remainder, scaled_minimums


def example(n4_weight: int = 80, n4_floor: int = 15) -> list[QuotaShare]:
    return [
        QuotaShare("n1", request=5, floor=10, weight=40),
        QuotaShare("n2", request=20, floor=15, weight=60),
        QuotaShare("n3", request=40, floor=20, weight=50),
        QuotaShare("n4", request=70, floor=n4_floor, weight=n4_weight),
    ]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param(example(), [5, 20, 35, 40], id="the A/B/C/D example"),
        pytest.param(example(n4_weight=0), [5, 20, 40, 15], id="weight zero borrows nothing"),
        pytest.param(example(n4_weight=0, n4_floor=45), [5, 20, 30, 45], id="a guarantee is a floor"),
        pytest.param([QuotaShare(n, 100, 0, 1) for n in "abc"], [34, 33, 33], id="spare unit goes by name"),
        pytest.param([QuotaShare(n, 100, 0, 1) for n in "cba"], [33, 33, 34], id="not by position"),
        pytest.param([QuotaShare("a", 0, 60, 1), QuotaShare("b", 96, 40, 1)], [0, 96], id="an idle floor is lent"),
        pytest.param([QuotaShare("a", 0, 60, 1, lends=False), QuotaShare("b", 96, 40, 1)], [60, 40], id="kept unlent"),
        pytest.param([QuotaShare("a", 200, 80, 1), QuotaShare("b", 200, 70, 1)], [80, 70], id="floors above the total"),
        pytest.param([], [], id="no claims"),
    ],
)
def test_fair_runtimes_of_a_hundred(claims: list[QuotaShare], expected: list[int]) -> None:
    assert list(fair_runtimes(100, claims).values()) == expected


def test_whole_devices_are_never_lost_in_rounding() -> None:
    borrowers = [QuotaShare(f"borrower-{i:02}", 100, 8 if i < 8 else 7, 1) for i in range(10)]
    runtime = fair_runtimes(81, [QuotaShare("donor", 0, 3, 1), *borrowers])
    assert runtime.pop("donor") == 0
    assert sum(runtime.values()) == 81
    assert list(runtime.values()) == [9, 9, 9, 8, 8, 8, 8, 8, 7, 7]


def test_weights_of_any_size_are_exact() -> None:
    huge = (2**63 - 1) // 5
    assert largest_remainder(2**62 + 1, [huge, huge]) == [2**61 + 1, 2**61]


@pytest.mark.parametrize(
    ("total", "scales", "expected"),
    [
        pytest.param(200, (False, True, True), [50, 50, 50], id="fits"),
        pytest.param(100, (False, True, True), [50, 25, 25], id="the scalable share what is left"),
        pytest.param(50, (False, True, True), [50, 0, 0], id="nothing left"),
        pytest.param(20, (False, True, True), [50, 0, 0], id="never negative"),
        pytest.param(75, (True, True, True), [25, 25, 25], id="all scale"),
        pytest.param(10, (False, False, False), [50, 50, 50], id="none scales"),
    ],
)
def test_scaled_minimums(total: int, scales: tuple[bool, ...], expected: list[int]) -> None:
    minimums = [Minimum(f"child-{i}", 50, scalable) for i, scalable in enumerate(scales)]
    assert list(scaled_minimums(total, minimums).values()) == expected


amounts = st.integers(min_value=0, max_value=2**48)
claim_lists = st.lists(
    st.builds(
        QuotaShare,
        name=st.text("abcdefgh", min_size=1, max_size=4),
        request=amounts,
        floor=st.integers(0, 1000),
        weight=st.integers(0, 2**62),
        lends=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda claim: claim.name,
)


@given(total=amounts, claims=claim_lists)
def test_runtimes_keep_floors_and_never_exceed_the_total(total: int, claims: list[QuotaShare]) -> None:
    runtime = fair_runtimes(total, claims)
    floors = sum(claim.floor for claim in claims)
    assert sum(runtime.values()) <= max(total, floors)
    for claim in claims:
        assert runtime[claim.name] >= min(claim.floor, claim.request)
        assert runtime[claim.name] <= max(claim.request, claim.floor)


@given(total=amounts, claims=claim_lists)
def test_nothing_stays_idle_while_somebody_with_weight_wants_it(total: int, claims: list[QuotaShare]) -> None:
    runtime = fair_runtimes(total, claims)
    idle = total - sum(runtime.values())
    if idle > 0:
        assert all(runtime[c.name] >= c.request for c in claims if c.weight > 0)


@given(total=amounts, claims=claim_lists)
def test_order_of_the_siblings_does_not_matter(total: int, claims: list[QuotaShare]) -> None:
    assert fair_runtimes(total, claims) == fair_runtimes(total, claims[::-1])


@given(total=amounts, parts=st.lists(amounts, min_size=1, max_size=9))
def test_scaled_minimums_fit(total: int, parts: list[int]) -> None:
    scaled = scaled_minimums(total, [Minimum(str(i), part) for i, part in enumerate(parts)])
    assert sum(scaled.values()) <= total
    assert all(scaled[str(i)] <= part for i, part in enumerate(parts))
