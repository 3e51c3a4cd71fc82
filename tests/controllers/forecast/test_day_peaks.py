"""A day's peaks: seasons found, bounds cover what they claim, rows independent, gaps teach nothing."""

import numpy as np
import pytest

from controllers.forecast.backtest import day_ahead, day_scores
from controllers.forecast.day_peaks import DAY_HOURS, MIN_HOURS, DayPeaks
from controllers.forecast.predictors import hourly_peaks
from controllers.forecast.traces import generated

ROW = np.arange(1)


def fed(peaks: np.ndarray, learner: DayPeaks | None = None) -> DayPeaks:
    learner = learner or DayPeaks(1)
    for hour, peak in enumerate(peaks):
        learner.step(ROW, np.array([peak]), hour)
    return learner


def test_a_daily_wave_is_continued_by_hour_of_the_day() -> None:
    hours = np.arange(24 * 10)
    wave = 10 + 4 * np.sin(2 * np.pi * hours / 24) + np.random.default_rng(1).normal(0, 0.1, len(hours))
    said = fed(wave).day(ROW, len(hours))[0]
    assert said == pytest.approx(10 + 4 * np.sin(2 * np.pi * np.arange(24) / 24), abs=0.6)
    assert np.allclose(fed(wave).day(ROW, len(hours) + 24)[0], said), "each hour stands at its place in the day"


def test_a_week_is_found_and_states_the_day_that_comes() -> None:
    hours = np.arange(24 * 7 * 5)
    busy = np.where((hours // 24) % 7 < 5, 20.0, 5.0) + np.random.default_rng(2).normal(0, 0.1, len(hours))
    learner = fed(busy)
    assert learner.day(ROW, len(hours))[0].max() == pytest.approx(20, abs=1)
    assert learner.day(ROW, len(hours) + 5 * 24)[0].max() == pytest.approx(5, abs=1)


def test_the_young_are_not_forecast_and_gaps_teach_nothing() -> None:
    learner = fed(np.full(MIN_HOURS - 1, 3.0))
    assert np.isnan(learner.day(ROW, MIN_HOURS)).all()
    learner.step(ROW, np.array([np.nan]), MIN_HOURS)
    assert np.isnan(learner.day(ROW, MIN_HOURS)).all()
    learner.step(ROW, np.array([3.0]), MIN_HOURS)
    assert learner.day(ROW, MIN_HOURS + 1)[0] == pytest.approx(np.full(DAY_HOURS, 3.0))
    assert learner.hours(ROW)[0] == MIN_HOURS


def test_rows_are_independent_grow_and_are_cleared() -> None:
    peaks = 10 + np.sin(np.arange(24 * 6) / 3)
    alone = fed(peaks).day(ROW, len(peaks))
    both = DayPeaks(0)
    both.resize(2)
    for hour, peak in enumerate(peaks):
        both.step(np.arange(2), np.array([peak, 1000.0 * (hour % 3)]), hour)
    both.resize(5)
    assert np.array_equal(both.day(ROW, len(peaks)), alone)
    assert len(both) == 5
    both.clear(ROW)
    assert np.isnan(both.day(ROW, len(peaks))).all()
    assert np.isfinite(both.day(np.array([1]), len(peaks))).all()


def test_on_the_generator_the_bound_covers_what_it_claims_at_less_cost_than_the_largest_peak() -> None:
    trace = generated(series=30, days=21)
    table = {each.predictor: each for each in day_scores(trace.samples, trace.first_hour, 96)}
    ours = table.pop("seasonal")
    assert 0.93 <= ours.coverage <= 0.985
    assert ours.cost < 0.6 * table["all hours, 7 days"].cost
    for each in table.values():
        assert each.ours_missed < each.missed, each.predictor


def test_a_day_is_said_before_it_begins() -> None:
    peaks = hourly_peaks(generated(series=2, days=8).samples)
    changed = peaks.copy()
    changed[:, -24:] *= 3
    assert np.array_equal(day_ahead(peaks, 0, 0.95)[:, -24:], day_ahead(changed, 0, 0.95)[:, -24:], equal_nan=True)
