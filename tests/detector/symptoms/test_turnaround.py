"""Turnaround: the loss of one tick."""

import pytest

from detector.symptoms.turnaround import Turnaround
from tests.detector.symptoms.ticks import MS, lost


def test_time_beyond_the_usual_counts() -> None:
    grown = {"turnaround.requests": 100, "turnaround.sum_ns": 500 * MS}
    assert lost(Turnaround(), grown) == pytest.approx(0.3)


def test_answers_in_time_cost_nothing() -> None:
    grown = {"turnaround.requests": 100, "turnaround.sum_ns": 100 * MS}
    assert lost(Turnaround(), grown) == pytest.approx(0.0)


def test_the_usual_spread_is_no_loss() -> None:
    grown = {"turnaround.requests": 100, "turnaround.sum_ns": 500 * MS}
    assert lost(Turnaround(), grown, sigmas=1.0) == pytest.approx(0.0)


def test_a_tail_that_the_ordinary_ticks_have_too_is_no_loss() -> None:
    grown = {"turnaround.requests": 100, "turnaround.sum_ns": 500 * MS}
    assert lost(Turnaround(), grown, upper_ratio=3.0) == pytest.approx(0.0)
    assert lost(Turnaround(), grown, upper_ratio=2.0) == pytest.approx(0.3)
