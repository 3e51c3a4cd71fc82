"""A steered limit: how it is cut and given back, what it never does, and that it finds the edge."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.response.limit_control import LimitState, first_limit, next_limit

MIB = float(1 << 20)


@pytest.mark.parametrize(
    ("loss_over_budget", "used", "expected"),
    [
        (2.0, 40.0, 20.0),  # by as much as the victim loses too much
        (1000.0, 40.0, 4.0),  # not lower than a tenth at once
        (1.01, 40.0, 32.0),  # by a fifth at least
        (2.0, 10.0, 40.0),  # the culprit does not press against it
        (0.7, 40.0, 40.0),  # near what is tolerated
        (math.nan, 40.0, 40.0),
        (0.1, 40.0, math.sqrt(40.0 * 80.0 * 1.05 * 0.9)),  # half way to where it hurt, as ratios go
    ],
)
def test_one_tick(loss_over_budget: float, used: float, expected: float) -> None:
    after = next_limit(LimitState(40.0, 100.0, 80.0), loss_over_budget=loss_over_budget, used=used, floor=1.0)
    assert after.limit == pytest.approx(expected)
    assert after.lowered == (expected < 40.0)


def test_a_limit_on_the_floor_stays_there_and_says_that_it_would_be_lowered() -> None:
    assert next_limit(LimitState(1.0, 100.0, 2.0), loss_over_budget=9.0, used=1.0, floor=1.0) == LimitState(
        1.0, 100.0, 1.0, lowered=True
    )


def test_without_harm_all_is_given_back_and_never_less_than_before() -> None:
    limit_state = LimitState(MIB, 100 * MIB, 2 * MIB)
    for _ in range(200):
        before, limit_state = limit_state, next_limit(limit_state, loss_over_budget=0.0, used=0.0, floor=MIB)
        assert limit_state.limit >= before.limit
    assert limit_state.limit == limit_state.ceiling


def run(limit_state: LimitState, edge: float, ticks: int) -> list[float]:
    """Limits over time where the victim loses with the square of the limit; the culprit takes all it may."""
    limits = []
    for _ in range(ticks):
        loss_over_budget = (limit_state.limit / edge) ** 2
        limit_state = next_limit(limit_state, loss_over_budget=loss_over_budget, used=limit_state.limit, floor=MIB)
        limits.append(limit_state.limit)
    return limits


@given(edge=st.floats(2 * MIB, 90 * MIB), used=st.floats(95 * MIB, 1000 * MIB))
def test_it_ends_near_the_edge_wherever_that_is(edge: float, used: float) -> None:
    limits = run(first_limit(used, (used / edge) ** 2, MIB), edge, 60)
    settled = limits[30:]
    assert sum(settled) / len(settled) > 0.5 * edge
    assert sorted(settled)[len(settled) * 9 // 10] < 1.3 * edge


@given(
    used=st.floats(MIB * 1.01, 1e10),
    ticks=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e10)), min_size=1, max_size=60),
)
def test_whatever_happens_it_stays_between_the_floor_and_what_was_used(
    used: float, ticks: list[tuple[float, float]]
) -> None:
    limit_state = first_limit(used, 5.0, MIB)
    for loss_over_budget, uses in ticks:
        before, limit_state = (
            limit_state,
            next_limit(limit_state, loss_over_budget=loss_over_budget, used=uses, floor=MIB),
        )
        assert MIB <= limit_state.limit <= limit_state.ceiling == used
        assert limit_state.limit <= before.limit or loss_over_budget <= 1
        assert limit_state.limit >= before.limit or loss_over_budget > 1
