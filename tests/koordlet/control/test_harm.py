"""The harm estimator: its ratio, its interval's coverage, and what it refuses to say."""

import numpy as np
import pytest

from koordlet.control.batch_means import BATCHES
from koordlet.control.harm import HarmMeter

IDS = np.array([3, 5], dtype=np.uint64)


def fed(meter: HarmMeter, ticks: int, lost: float, progress: float = 0.5) -> HarmMeter:
    for _ in range(ticks):
        meter.add(IDS, np.array([lost, 0.0]), np.array([progress, 0.0]), 1.0)
    return meter


def test_the_ratio_is_lost_time_over_progress() -> None:
    harm = fed(HarmMeter(), 60, 0.02).harm(IDS)
    assert harm.ratio[0] == pytest.approx(0.04)
    assert harm.low[0] == pytest.approx(0.04)
    assert harm.high[0] == pytest.approx(0.04)
    assert harm.batches[0] == 12


def test_without_progress_or_with_one_batch_nothing_is_said() -> None:
    assert np.isnan(fed(HarmMeter(), 60, 0.02).harm(IDS).ratio[1])
    assert np.isnan(fed(HarmMeter(), 6, 0.02).harm(IDS).ratio[0])
    assert np.isnan(HarmMeter().harm(IDS).ratio).all()


def test_who_was_never_seen_is_unknown_and_who_comes_late_starts_then() -> None:
    meter = fed(HarmMeter(), 30, 0.02)
    both = np.array([3, 9], dtype=np.uint64)
    assert np.isnan(meter.harm(both).ratio[1])
    for _ in range(30):
        meter.add(both, np.array([0.02, 0.1]), np.array([0.5, 0.5]), 1.0)
    harm = meter.harm(both)
    assert harm.ratio == pytest.approx([0.04, 0.2])
    assert harm.batches[1] < harm.batches[0]


def test_old_batches_fall_out() -> None:
    meter = fed(fed(HarmMeter(), 500, 0.5), 5 * BATCHES + 5, 0.0)
    assert meter.harm(IDS).ratio[0] == 0.0


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(11)
    covered = 0
    for _ in range(300):
        meter = HarmMeter()
        for _tick in range(5 * BATCHES):
            meter.add(IDS[:1], random.exponential(0.03, 1), random.normal(0.5, 0.1, 1), 1.0)
        harm = meter.harm(IDS[:1])
        covered += bool(harm.low[0] <= 0.06 <= harm.high[0])
    assert 0.90 <= covered / 300 <= 0.99
