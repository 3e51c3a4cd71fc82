"""Results of the self-test: bounds and words."""

import math

import pytest

from koordlet.self_test.results import Status, absent, held, within


@pytest.mark.parametrize(
    ("measured", "status"),
    [
        (89.0, Status.WRONG),
        (91.0, Status.RIGHT),
        (109.0, Status.RIGHT),
        (111.0, Status.WRONG),
        (math.nan, Status.WRONG),
    ],
)
def test_a_figure_is_held_against_the_truth(measured: float, status: Status) -> None:
    assert held("x", measured, 100.0, "s").status is status


def test_slack_widens_both_bounds_and_none_is_below_zero() -> None:
    result = held("x", 0.0, 0.05, "s", slack=0.1)
    assert (result.low, result.status) == (0.0, Status.RIGHT)
    assert result.high == pytest.approx(0.155)


def test_the_bounds_as_words() -> None:
    assert within("x", 2, 1, math.inf, "trips").expected == "at least 1 trips"
    assert within("x", 2, 1, 3, "s").expected == "1 to 3 s"


def test_what_is_wrong_has_a_reason_and_what_is_right_none() -> None:
    assert within("x", 0, 1, 2, "").reason
    assert not within("x", 1, 1, 2, "").reason
    assert absent("x", "no such CPU", "buy one").status is Status.ABSENT
