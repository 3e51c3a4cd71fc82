"""Autoscaling on the past: the forecast saves peaks at equal cost, nothing of an hour is known before it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from controllers.__main__ import main
from controllers.forecast.scaling import LEAD_STEPS, START_STEPS, scaling
from controllers.forecast.traces import SAMPLES_AN_HOUR

DAYS = 12


def trace(seed: int = 1, series: int = 8) -> np.ndarray:
    """Ten times as much from 9 to 17 o'clock, with noise."""
    draw = np.random.default_rng(seed)
    hours = np.arange(DAYS * 24 * SAMPLES_AN_HOUR) / SAMPLES_AN_HOUR % 24
    wave = np.where((hours >= 9) & (hours < 17), 10.0, 1.0)
    return np.maximum(wave * draw.lognormal(0, 0.03, (series, len(wave))), 0).reshape(series, -1, SAMPLES_AN_HOUR)


def test_replicas_are_there_when_the_morning_comes() -> None:
    found = scaling(trace(), 0, 72)
    assert found is not None
    assert found.ahead.missed < 0.2 * found.reactive.missed
    assert found.reactive_at_cost.cost == pytest.approx(found.ahead.cost, rel=0.05)
    assert found.ahead.missed < found.reactive_at_cost.missed


def test_what_comes_without_a_season_is_not_foreseen() -> None:
    samples = np.ones((4, DAYS * 24, SAMPLES_AN_HOUR))
    samples[:, 200, :] = 20.0
    found = scaling(samples, 0, 72)
    assert found is not None
    assert found.ahead.missed == found.reactive.missed == (START_STEPS + 1) / SAMPLES_AN_HOUR / (DAYS * 24 - 72)


def test_a_forecast_of_the_next_hour_knows_nothing_of_the_one_before_it() -> None:
    assert 0 < LEAD_STEPS < SAMPLES_AN_HOUR
    calm = trace()
    spiked = calm.copy()
    spiked[:, -1, :] = 1000.0
    before, after = scaling(calm[:, :-1], 0, 72), scaling(spiked[:, :-1], 0, 72)
    assert before == after


def test_too_short_or_empty() -> None:
    assert scaling(trace()[:, :72], 0, 72) is None
    assert scaling(np.full((1, 100, SAMPLES_AN_HOUR), np.nan), 0, 72) is None


def test_the_command_prints_both_autoscalers() -> None:
    done = CliRunner().invoke(main, ["backtest", "--scaling", "--generated", "1"])
    assert done.exit_code == 0, done.output
    assert "by use and forecast" in done.output
    found = json.loads(CliRunner().invoke(main, ["backtest", "--scaling", "--generated", "1", "-o", "json"]).output)
    ((_, own),) = found.items()
    assert own["ahead"]["missed"] < own["reactive_at_cost"]["missed"]
