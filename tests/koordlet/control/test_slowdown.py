"""The slowdown of services: its ratio, the load it is compared at, its interval, and refused inputs."""

import numpy as np
import pytest
from numpy.typing import NDArray

from detector.baselines.learner import Baselines
from detector.baselines.values import BaselineSample, Judgement, LoadKind, WorkloadKey
from detector.judging.signals import Turnarounds
from koordlet.control.batch_means import BATCHES
from koordlet.control.slowdown import SlowdownMeter, tick_slowdown

IDS = np.array([3, 5], dtype=np.uint64)


def tick(mean: float, usual: float, requests: float = 100.0, samples: int = 100_000) -> Turnarounds:
    """Cgroup 3 answers in `mean` seconds; cgroup 5 has no requests."""
    expected = np.array([usual, np.nan])
    none = np.full(2, np.nan)
    judged = Judgement(expected, expected * 0.1, none, none, np.zeros(2), np.full(2, samples), none, none)
    return Turnarounds(IDS, np.array([requests, 0.0]), np.array([requests * mean, 0.0]), judged)


def fed(meter: SlowdownMeter, ticks: int, turnarounds: Turnarounds) -> SlowdownMeter:
    for _ in range(ticks):
        meter.add(turnarounds, 1.0)
    return meter


def test_it_is_what_requests_took_over_what_they_usually_take_less_one() -> None:
    found = fed(SlowdownMeter(), 60, tick(0.015, 0.010)).slowdown(IDS)
    assert found.ratio[0] == pytest.approx(0.5)
    assert found.batches[0] == 12
    assert found.low[0] < 0.5 < found.high[0]


def test_no_doubt_is_smaller_than_the_baselines_grain() -> None:
    found = fed(SlowdownMeter(), 60, tick(0.010, 0.010)).slowdown(IDS)
    assert (1 + found.high[0]) / (1 + found.low[0]) >= 2**0.25
    assert found.low[0] < 0 < found.high[0]


def test_a_young_baseline_is_trusted_less() -> None:
    old, young = (fed(SlowdownMeter(), 60, tick(0.01, 0.01, samples=n)).slowdown(IDS) for n in (100_000, 60))
    assert young.high[0] - young.low[0] > 1.3 * (old.high[0] - old.low[0])


def test_each_tick_is_compared_at_its_own_load() -> None:
    """Twice the load usually takes twice as long: a surge of own requests is no slowdown."""
    meter = SlowdownMeter()
    for second in range(60):
        meter.add(tick(0.02, 0.02, requests=200.0) if second % 2 else tick(0.01, 0.01, requests=100.0), 1.0)
    assert meter.slowdown(IDS).ratio[0] == pytest.approx(0.0)


def test_slow_requests_weigh_by_their_number() -> None:
    meter = fed(fed(SlowdownMeter(), 30, tick(0.02, 0.01, requests=10.0)), 30, tick(0.01, 0.01, requests=90.0))
    assert meter.slowdown(IDS).ratio[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("turnarounds", "ticks"),
    [
        pytest.param(tick(0.01, float("nan")), 60, id="no-baseline"),  # warming up
        pytest.param(tick(0.01, 0.01, requests=0.0), 60, id="no-requests"),
        pytest.param(tick(0.01, 0.01), 7, id="one-batch"),  # one batch
    ],
)
def test_without_requests_a_baseline_or_two_batches_nothing_is_said(turnarounds: Turnarounds, ticks: int) -> None:
    found = fed(SlowdownMeter(), ticks, turnarounds).slowdown(IDS)
    assert np.isnan([found.ratio, found.low, found.high]).all()


def test_ticks_without_requests_say_nothing_and_dilute_nothing() -> None:
    meter = SlowdownMeter()
    for second in range(60):
        meter.add(tick(0.02, 0.01, requests=10.0 if second < 20 else 0.0), 1.0)
    found = meter.slowdown(IDS)
    assert found.ratio[0] == pytest.approx(1.0)
    assert found.batches[0] == 4


def test_who_was_never_seen_is_unknown() -> None:
    assert np.isnan(fed(SlowdownMeter(), 60, tick(0.01, 0.01)).slowdown(np.array([9], dtype=np.uint64)).ratio).all()
    assert np.isnan(SlowdownMeter().slowdown(IDS).ratio).all()


def learned(draw: NDArray[np.float64]) -> Judgement:
    """Judgement of the baselines after these quiet ticks."""
    baselines, keys = Baselines(), (WorkloadKey("web"),)

    def observed(value: float) -> BaselineSample:
        kind = np.array([int(LoadKind.REQUESTS_PER_SECOND)])
        return BaselineSample(keys, np.array([100.0]), kind, {"turnaround": np.array([value])})

    for second, value in enumerate(draw.tolist()):
        baselines.learn(observed(value), 1e9 + second)
    return baselines.judge(observed(0.01), 1e9 + len(draw))["turnaround"]


@pytest.mark.parametrize("slower", [0.0, 0.5])
def test_the_interval_covers_the_truth_at_least_as_often_as_it_says(slower: float) -> None:
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(60):
        middle = float(random.uniform(0.008, 0.016))
        usual = learned(random.normal(middle, middle / 10, 120))
        meter = SlowdownMeter()
        for _tick in range(5 * BATCHES):
            mean = float(random.normal(middle, middle / 10)) * (1 + slower)
            meter.add(Turnarounds(IDS[:1], np.array([100.0]), np.array([100.0 * mean]), usual), 1.0)
        found = meter.slowdown(IDS[:1])
        covered += bool(found.low[0] <= slower <= found.high[0])
        assert found.high[0] - found.low[0] < 0.6 * (1 + slower)
    assert covered >= 57


def test_a_tick_is_slower_only_beyond_the_grain_of_its_baseline() -> None:
    as_usual, a_bit, much = (tick_slowdown(tick(mean, 0.010), IDS)[0] for mean in (0.010, 0.0101, 0.030))
    assert as_usual < a_bit < 0.05
    assert 1.0 < much < 2.0


def test_a_tick_without_requests_or_baseline_says_nothing_and_rows_follow_the_ids() -> None:
    assert np.isnan(tick_slowdown(tick(0.030, np.nan), IDS)).all()
    assert np.isnan(tick_slowdown(tick(0.030, 0.010, requests=3.0), IDS)).all()
    found = tick_slowdown(tick(0.030, 0.010), np.array([9, 5, 3], dtype=np.uint64))
    assert np.isnan(found[:2]).all()
    assert found[2] > 1.0
