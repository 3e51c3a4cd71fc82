"""Time lost to one cause: a mean between two reports, from the first loss on."""

import pytest

from koordlet.kube.lost_time import LostTime


def test_the_mean_between_two_reports() -> None:
    made = LostTime()
    made.add({"w": 0.5, "b": 0.0}, 1.0)
    made.add({"w": 0.1, "b": 0.0}, 2.0)
    assert made.take() == pytest.approx({"w": 0.2})
    made.add({"w": 0.0, "b": 0.0}, 1.0)
    assert made.take() == {"w": 0.0}, "so that the reader's mean falls"


def test_a_pod_that_is_gone_and_a_report_without_a_tick() -> None:
    made = LostTime()
    assert made.take() == {}
    made.add({"w": 0.5}, 1.0)
    made.add({}, 1.0)
    assert made.take() == {}


def test_a_tick_that_was_not_measured_counts_for_nothing() -> None:
    made = LostTime()
    made.add({"w": 0.5}, 1.0)
    made.add(None, 1.0)
    assert made.take() == pytest.approx({"w": 0.5})
    made.add({"w": 0.0}, 1.0)
    assert made.take() == {"w": 0.0}, "it is not gone"
