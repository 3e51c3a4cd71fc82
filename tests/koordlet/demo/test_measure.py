"""The demo's arithmetic: percentiles that count lost requests, ratios, the moving p99; and an open loop's arrivals."""

import math

import numpy as np
import pytest

from koordlet.demo.client import arrivals
from koordlet.demo.measure import DemoPhase, compare, rolling_p99
from koordlet.demo.show import milliseconds, percent, sparkline


def phase(name: str, latency: list[float], blocks: int = 0) -> DemoPhase:
    return DemoPhase(name, 10.0, np.linspace(0, 10, len(latency)), np.array(latency), blocks)


def test_a_request_without_an_answer_is_slower_than_all_others() -> None:
    found = phase("alone", [0.01] * 98 + [math.nan] * 2).quantiles
    assert found[0] == 0.01
    assert found[1] == math.inf
    assert np.isnan(phase("alone", []).quantiles).all()


def test_quantiles_are_those_of_the_ranks() -> None:
    found = phase("alone", [number / 1000 for number in range(1, 1001)]).quantiles
    assert found == pytest.approx([0.5, 0.99, 0.999])


def test_phases_are_compared_with_the_first_and_the_work_with_the_second() -> None:
    rows = compare([phase("alone", [0.01]), phase("unprotected", [0.03], 1000), phase("protected", [0.011], 900)])
    assert [row.p99_ratio for row in rows] == pytest.approx([1.0, 3.0, 1.1])
    assert rows[2].work_ratio == pytest.approx(0.9)
    assert math.isnan(compare([phase("alone", [0.01])])[0].work_ratio)


def test_the_moving_p99_is_of_the_last_seconds_and_unknown_without_requests() -> None:
    track = rolling_p99(np.array([0.1, 5.0]), np.array([0.01, 0.02]), 6.0, step=1.0, span=2.0)
    assert track[0] == 0.01
    assert math.isnan(track[3])
    assert track[4] == 0.02


def test_arrivals_are_poisson_and_repeatable() -> None:
    times = list(arrivals(100.0, 50.0, 3))
    assert times == list(arrivals(100.0, 50.0, 3))
    assert times == sorted(times)
    gaps = np.diff(times)
    assert len(times) == pytest.approx(5000, rel=0.06)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)


def test_words() -> None:
    assert (milliseconds(0.0123), milliseconds(math.inf), milliseconds(math.nan)) == ("12.3 ms", "lost", "-")
    assert (percent(0.874), percent(math.nan)) == ("87%", "-")
    assert sparkline(np.array([0.0, 1.0, math.nan]), 1.0) == "▁█ "
