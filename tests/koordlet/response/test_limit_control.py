"""A steered limit: how it is cut and given back, what it never does, and that it finds the edge."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.response.limit_control import LimitState, begun, steered

MIB = float(1 << 20)


@pytest.mark.parametrize(
    ("strain", "used", "expected"),
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
def test_one_tick(strain: float, used: float, expected: float) -> None:
    after = steered(LimitState(40.0, 100.0, 80.0), strain=strain, used=used, floor=1.0)
    assert after.limit == pytest.approx(expected)
    assert after.cut == (expected < 40.0)


def test_a_limit_on_the_floor_stays_there_and_says_that_it_would_be_lowered() -> None:
    assert steered(LimitState(1.0, 100.0, 2.0), strain=9.0, used=1.0, floor=1.0) == LimitState(
        1.0, 100.0, 1.0, cut=True
    )


def test_without_harm_all_is_given_back_and_never_less_than_before() -> None:
    course = LimitState(MIB, 100 * MIB, 2 * MIB)
    for _ in range(200):
        before, course = course, steered(course, strain=0.0, used=0.0, floor=MIB)
        assert course.limit >= before.limit
    assert course.limit == course.most


def run(course: LimitState, edge: float, ticks: int) -> list[float]:
    """Limits over time where the victim loses with the square of the limit; the culprit takes all it may."""
    limits = []
    for _ in range(ticks):
        strain = (course.limit / edge) ** 2
        course = steered(course, strain=strain, used=course.limit, floor=MIB)
        limits.append(course.limit)
    return limits


@given(edge=st.floats(2 * MIB, 90 * MIB), used=st.floats(95 * MIB, 1000 * MIB))
def test_it_ends_near_the_edge_wherever_that_is(edge: float, used: float) -> None:
    limits = run(begun(used, (used / edge) ** 2, MIB), edge, 60)
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
    course = begun(used, 5.0, MIB)
    for strain, uses in ticks:
        before, course = course, steered(course, strain=strain, used=uses, floor=MIB)
        assert MIB <= course.limit <= course.most == used
        assert course.limit <= before.limit or strain <= 1
        assert course.limit >= before.limit or strain > 1
