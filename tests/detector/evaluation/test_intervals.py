"""Intervals against published values."""

import pytest

from detector.evaluation.intervals import most_events, share_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(22, 22, 0.851, 1.0), (0, 10, 0.0, 0.278), (81, 263, 0.255, 0.366), (0, 0, 0.0, 1.0)],
)
def test_shares(successes: int, trials: int, low: float, high: float) -> None:
    """The third row is the example of Newcombe, Statistics in Medicine 17 (1998), table I."""
    assert share_interval(successes, trials) == (pytest.approx(low, abs=6e-4), pytest.approx(high, abs=6e-4))


@pytest.mark.parametrize(("events", "bound"), [(0, 2.996), (1, 4.744), (5, 10.513), (20, 29.062)])
def test_rates(events: int, bound: float) -> None:
    """One-sided bounds of Garwood (Biometrika 28, 1936)."""
    assert most_events(events) == pytest.approx(bound, abs=2e-3)
