"""Forecast of the next hour: season found, bound covers what it claims, rows independent, gaps teach nothing."""

import numpy as np
import pytest

from controllers.forecast.backtest import cost, missed_at, scores, seasonal
from controllers.forecast.predictors import BASELINES, hourly_peaks, last_value
from controllers.forecast.seasonal import SeasonalForecaster
from controllers.forecast.traces import generated

ROWS = np.arange(1)
HOURS = np.arange(24 * 21)


def fed(peaks: np.ndarray) -> SeasonalForecaster:
    forecaster = SeasonalForecaster(1)
    for hour, peak in enumerate(peaks):
        forecaster.step(ROWS, np.array([peak]), hour)
    return forecaster


@pytest.mark.parametrize(
    ("period", "wave"),
    [
        pytest.param(24, 4 * np.sin(2 * np.pi * HOURS / 24), id="day"),
        pytest.param(168, 4.0 * ((HOURS // 24) % 7 >= 5) * np.sin(2 * np.pi * HOURS / 24), id="weekend"),
        pytest.param(1, 0.0 * HOURS, id="none"),
    ],
)
def test_the_season_is_found_and_continued(period: int, wave: np.ndarray) -> None:
    noise = np.random.default_rng(3).normal(0, 0.1, len(HOURS))
    said = fed(10 + wave + noise).forecast(ROWS, len(HOURS))
    assert said.period_hours[0] == period
    assert said.expected[0] == pytest.approx(10 + wave[0], abs=0.3)
    assert 0 < said.spread[0] < 1.0


def test_without_history_there_is_no_forecast_and_a_gap_teaches_nothing() -> None:
    forecaster = SeasonalForecaster(1)
    assert np.isnan(forecaster.forecast(ROWS, 0).bound[0])
    forecaster.step(ROWS, np.array([np.nan]), 0)
    assert np.isnan(forecaster.forecast(ROWS, 1).bound[0])


def test_rows_are_independent_grow_and_are_cleared() -> None:
    peaks = 10 + np.sin(HOURS / 3)
    alone = fed(peaks).forecast(ROWS, len(HOURS))
    both = SeasonalForecaster(0)
    both.resize(2)
    for hour, peak in enumerate(peaks):
        both.step(np.array([1, 0]), np.array([peak, 500.0]), hour)
    together = both.forecast(np.array([0, 1]), len(HOURS))
    assert together.bound[1] == alone.bound[0]
    both.clear(np.array([1]))
    cleared = both.forecast(np.array([0, 1]), len(HOURS))
    assert cleared.bound[0] == together.bound[0]
    assert np.isnan(cleared.bound[1])


def test_the_bound_covers_what_it_claims() -> None:
    trace = generated(series=20, days=21)
    peaks = hourly_peaks(trace.samples)
    expected, spread = seasonal(peaks, trace.first_hour, 0.95)
    judged = np.arange(peaks.shape[1]) >= 72
    coverage = np.mean((peaks <= expected + spread)[:, judged])
    assert 0.93 <= coverage <= 0.97


def test_fewer_peaks_are_missed_at_equal_cost_than_by_each_baseline() -> None:
    trace = generated(series=20, days=21)
    table = {each.predictor: each for each in scores(trace.samples, trace.first_hour, 72)}
    assert set(table) == {*BASELINES, "seasonal"}
    for name in BASELINES:
        assert table[name].ours_missed < table[name].missed, name


def test_equal_cost_is_equal() -> None:
    actual = np.array([1.0, 2.0, 3.0])
    assert missed_at(np.zeros(3), np.ones(3), actual, wanted=cost(np.full(3, 2.0), actual)) == pytest.approx(1 / 3)


def test_last_value_is_that_of_the_hour_before_and_skips_gaps() -> None:
    samples = np.array([[[1.0, 3.0], [np.nan, np.nan], [2.0, 2.0], [0.0, 0.0]]])
    said = last_value(samples, 0)
    assert np.isnan(said[0, 0])
    assert said[0, 1:].tolist() == [3.0, 3.0, 2.0]


def test_a_trace_too_short_has_no_score() -> None:
    trace = generated(series=2, days=2)
    assert scores(trace.samples, trace.first_hour, warm_up_hours=72) == []
