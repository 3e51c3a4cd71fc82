"""Waits by level of CPU and demand beyond quotas: what samples one by one would tell; rows for those that need one."""

import numpy as np
import pytest

from controllers.recommend.losses import curable_wait
from controllers.recommend.on_demand import QuotaDemand, RowsOnDemand, WaitLevels, cured_a_second, waited_a_second
from controllers.recommend.usage import CPU_BUCKETS, HALF_LIFE_SECONDS, Usage
from detector.histograms import DecayingHistograms

NOW = 1_700_000_000.0
COUNT = 3


def samples(count: int = 4000, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Aggregates, cores used, seconds a second lost and times within an hour."""
    draw = np.random.default_rng(seed)
    at = NOW + np.sort(draw.uniform(0, 3600, count))
    return draw.integers(0, COUNT, count), draw.lognormal(0, 0.7, count), draw.exponential(0.3, count), at


@pytest.mark.parametrize("request_cores", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("target_cores", [0.25, 1.3, 8.0])
def test_what_a_request_cures_is_that_of_the_samples_one_by_one(request_cores: float, target_cores: float) -> None:
    aggregates, cores, waited, _ = samples()
    levels = WaitLevels()
    for part in np.array_split(np.arange(len(cores)), 7):
        levels.add(aggregates[part], cores[part], waited[part], np.full(len(part), NOW))
    sums = levels.of([np.array([each]) for each in range(COUNT)])
    wanted = curable_wait(cores, waited, np.full(len(cores), request_cores), np.full(len(cores), target_cores))
    exact = np.bincount(aggregates, wanted) / np.bincount(aggregates)
    found = cured_a_second(sums, np.full(COUNT, request_cores), np.full(COUNT, target_cores))
    assert found == pytest.approx(exact, rel=0.03, abs=0.003)
    assert waited_a_second(sums) == pytest.approx(np.bincount(aggregates, waited) / np.bincount(aggregates), rel=1e-4)


def test_groups_of_aggregates_add_up_and_nothing_told_is_no_figure() -> None:
    levels = WaitLevels()
    levels.add(np.array([0, 1, 4]), np.array([1.0, 1.0, 1.0]), np.array([0.2, 0.4, np.nan]), np.full(3, NOW))
    sums = levels.of([np.array([0, 1]), np.array([4]), np.array([7])])
    assert waited_a_second(sums) == pytest.approx([0.3, np.nan, np.nan], nan_ok=True)
    assert cured_a_second(sums, np.zeros(3), np.full(3, 50.0)) == pytest.approx([0.3, np.nan, np.nan], nan_ok=True)


def test_a_sample_weighs_half_of_one_a_half_life_later_and_a_hundred_of_them_are_no_trouble() -> None:
    levels = WaitLevels()
    for wait, at in ((0.9, NOW), (0.3, NOW + HALF_LIFE_SECONDS)):
        levels.add(np.array([0]), np.array([1.0]), np.array([wait]), np.array([at]))
    assert waited_a_second(levels.of([np.array([0])]))[0] == pytest.approx(0.5, rel=1e-4)
    late = NOW + 100 * HALF_LIFE_SECONDS
    levels.add(np.array([0]), np.array([1.0]), np.array([0.2]), np.array([late]))
    assert waited_a_second(levels.of([np.array([0])]))[0] == pytest.approx(0.2, rel=1e-4)


def test_demand_is_use_until_a_loss_and_use_with_the_loss_from_then_on() -> None:
    aggregates, cores, lost, at = samples()
    lost = np.where((aggregates == 0) | (at < NOW + 1200), 0.0, lost)
    usage, every = Usage.compact(), np.arange(COUNT)
    streams = usage.open(np.arange(len(cores)) * 0 + aggregates)
    demand, exact = QuotaDemand(usage.cpu), DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS)
    exact.resize(COUNT)
    exact.add_many(aggregates, cores + lost, at)
    for part in np.array_split(np.arange(len(cores)), 9):
        usage.add_cpu(streams[part], at[part], cores[part])
        demand.add(aggregates[part], cores[part], lost[part], at[part])
    found = DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS)
    found.weights = demand.weights(every)
    for share in (0.5, 0.9, 0.99):
        assert found.percentile(every, share) == pytest.approx(exact.percentile(every, share), rel=1e-9)


def test_demand_of_old_use_is_in_its_proportion() -> None:
    usage = Usage.compact()
    demand = QuotaDemand(usage.cpu)
    stream = usage.open(np.array([0, 1]))
    for day, lost in ((0, 0.0), (1, 0.0), (60, 0.0), (61, 5.0)):
        at = np.full(2, NOW + day * 86_400.0)
        usage.add_cpu(stream, at, np.array([1.0, 1.0]))
        demand.add(np.array([0, 1]), np.array([1.0, 1.0]), np.array([lost, 0.0]), at)
    losing, other = demand.weights(np.array([0, 1]))
    assert losing.sum() == pytest.approx(other.sum(), rel=1e-4)
    assert losing[CPU_BUCKETS.index(np.array([6.0]))[0]] / losing.sum() == pytest.approx(2 / 3, rel=1e-3)


def test_rows_of_what_is_gone_are_given_again_empty() -> None:
    rows = RowsOnDemand()
    assert rows.make(np.array([5, 2])).tolist() == [0, 1]
    assert rows.of(np.array([2, 3, 5, 900])).tolist() == [1, -1, 0, -1]
    assert (rows.drop(5), rows.drop(5), rows.drop(900)) == (0, None, None)
    assert rows.make(np.array([7])).tolist() == [0]
    assert rows.count == 2
    levels = WaitLevels()
    levels.add(np.array([3]), np.array([1.0]), np.array([0.5]), np.array([NOW]))
    levels.clear(3)
    levels.add(np.array([4]), np.array([1.0]), np.array([0.1]), np.array([NOW]))
    assert waited_a_second(levels.of([np.array([3]), np.array([4])])) == pytest.approx([np.nan, 0.1], nan_ok=True)


def test_a_first_loss_after_months_without_any_is_finite() -> None:
    usage = Usage.compact()
    demand = QuotaDemand(usage.cpu)
    streams = usage.open(np.array([0, 1]))
    for aggregate, days in ((0, 0), (1, 200)):
        at = np.array([NOW + days * 86_400.0])
        usage.add_cpu(streams[aggregate : aggregate + 1], at, np.array([1.0]))
        demand.add(np.array([aggregate]), np.array([1.0]), np.array([0.5]), at)
        demand.clear(0)
    weights = demand.weights(np.array([1]))[0]
    assert np.isfinite(weights).all()
    assert weights[CPU_BUCKETS.index(np.array([1.5]))[0]] == pytest.approx(weights.sum(), rel=1e-4)
    assert weights.sum() > 0
