"""Presence: which requests count, and what is said of a goal."""

import numpy as np
import pytest

from bench.presence.__main__ import answer, quantiles, ratio_intervals
from bench.stolen import HORIZON_SECONDS, RECOVERY_SECONDS, TICK_SECONDS, disturbed, share


def looks(*rows: tuple[float, int]) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


@pytest.mark.parametrize(
    ("begin", "met"),
    [
        pytest.param(10.069 - HORIZON_SECONDS, False, id="before"),
        pytest.param(10.071 - HORIZON_SECONDS, True, id="within-the-horizon"),
        pytest.param(10.080, True, id="within"),
        pytest.param(10.109 + RECOVERY_SECONDS, True, id="in-the-queue-behind-it"),
        pytest.param(10.111 + RECOVERY_SECONDS, False, id="after"),
    ],
)
def test_a_request_counts_unless_stolen_time_is_near(begin: float, met: bool) -> None:
    """Two ticks are found at 10.11: they began up to three ticks before the look at 10.10."""
    account = looks((10.0, 7), (10.05, 7), (10.10, 7), (10.11, 9), (10.30, 9))
    assert disturbed(account, np.array([begin])).tolist() == [met]


def test_a_long_loss_that_began_before_a_short_one_is_not_forgotten() -> None:
    account = looks((1.0, 0), (2.0, 1), (2.01, 100), (3.0, 100))
    assert disturbed(account, np.array([1.5, 2.02, 2.5])).tolist() == [True, True, False]


def test_nothing_stolen_counts_everything() -> None:
    account = looks((1.0, 5), (2.0, 5))
    assert not disturbed(account, np.array([1.0, 1.5])).any()
    assert share(account) == 0.0


def test_share_is_of_all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert share(looks((0.0, 0), (10.0, round(1 / TICK_SECONDS)))) == pytest.approx(1 / 40)


def test_quantiles_are_absent_where_no_request_is_beyond() -> None:
    found = quantiles(np.arange(1.0, 101.0))
    assert found[:3].tolist() == [50.0, 90.0, 99.0]
    assert np.isnan(found[3])
    assert np.isnan(quantiles(np.empty(0))).all()


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        pytest.param([1.00, 1.02, 1.04, 0.99, 1.01, 1.00], "met", id="all-within"),
        pytest.param([1.50, 1.40, 1.60, 1.55, 1.45, 1.50], "NOT MET", id="all-beyond"),
        pytest.param([0.60, 1.05, 2.00, 0.80, 1.90, 1.00], "UNDECIDED, within it by the medians", id="noise"),
        pytest.param([0.60, 1.15, 2.00, 0.80, 1.90, 1.20], "UNDECIDED, beyond it by the medians", id="noise-beyond"),
    ],
)
def test_a_goal_is_decided_by_the_interval(ratios: list[float], said: str) -> None:
    rows = np.ones((len(ratios), 4))
    rows[:, 3] = ratios
    assert answer(rows) == said


@pytest.mark.parametrize(
    "ratios",
    [
        pytest.param([1.0], id="one"),
        pytest.param([1.0] * 5, id="five"),
        pytest.param([1.0] + [np.nan] * 9, id="one-of-ten"),
        pytest.param([np.nan] * 10, id="none-of-ten"),
    ],
)
def test_few_repetitions_decide_nothing(ratios: list[float]) -> None:
    rows = np.ones((len(ratios), 4))
    rows[:, 3] = ratios
    assert answer(rows).startswith("UNDECIDED: ")
    middle, low, high = ratio_intervals(rows)
    assert np.isnan([middle[3], low[3], high[3]]).all() == bool(np.isnan(ratios).all())
