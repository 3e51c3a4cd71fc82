"""Recommendations against the published figures of the Vertical Pod Autoscaler."""

import numpy as np
import pytest

from controllers.recommend.estimates import MAX_AMOUNT, RecommendSettings, confidence, recommend, widened
from controllers.recommend.usage import Usage

DAY = 24 * 3600.0
NOW = 1_700_000_000.0
ONE = np.array([0])


def sampled(every_seconds: float, count: int, cores: float = 0.5, used_bytes: float = 0.0) -> Usage:
    usage = Usage()
    usage.open(ONE)
    at = NOW + np.arange(count) * every_seconds
    streams = np.zeros(count, np.intp)
    usage.add_cpu(streams, at, np.full(count, cores))
    if used_bytes:
        usage.add_memory(streams, at, np.full(count, used_bytes))
    return usage


@pytest.mark.parametrize(
    ("interval_seconds", "expected", "cores"), [(DAY, 0.00625, 907.46), (18 * 60.0, 0.5, 4.521)], ids=str
)
def test_confidence_of_nine_samples_at_two_minutes(interval_seconds: float, expected: float, cores: float) -> None:
    found = confidence(sampled(120.0, 9), ONE, interval_seconds)
    assert found[0] == pytest.approx(expected)
    assert widened(np.array([3.14]), found, 0.1, 2.0)[0] == pytest.approx(cores, abs=0.01)


@pytest.mark.parametrize(
    ("minutes", "upper", "lower"),
    [(5, 289.0, 0.6), (30, 49.0, 0.91), (12 * 60, 3.0, 0.996), (24 * 60, 2.0, 0.998), (7 * 24 * 60, 1.142857, 0.9997)],
    ids=str,
)
def test_bounds_narrow_with_history(minutes: int, upper: float, lower: float) -> None:
    known = np.array([minutes / (24 * 60)])
    assert widened(np.ones(1), known, 1.0, 1.0)[0] == pytest.approx(upper, rel=1e-3)
    assert widened(np.ones(1), known, 0.001, -2.0)[0] == pytest.approx(lower, abs=5e-3)


def test_without_confidence_a_bound_is_all_or_nothing() -> None:
    none = np.zeros(1)
    assert widened(np.array([3.14]), none, 1.0, 1.0)[0] == MAX_AMOUNT
    assert widened(np.array([3.14]), none, 0.001, -2.0)[0] == 0.0


def test_a_recommendation() -> None:
    usage = Usage()
    usage.open(ONE)
    cores = np.append(np.full(93, 0.5), np.full(7, 1.0))
    usage.add_cpu(np.zeros(100, np.intp), NOW + np.arange(100) * 1e-3, cores)
    usage.add_memory(ONE, np.array([NOW]), np.array([1e9]))
    found = recommend(usage, ONE)
    assert found.cpu_millicores.target[0] == 588
    assert 1.15e9 <= found.memory_bytes.target[0] <= 1.15e9 * 1.06
    assert found.memory_bytes.target[0] == np.ceil(found.memory_bytes.target[0])


def test_containers_share_the_least_amounts_of_their_pod() -> None:
    usage = sampled(60.0, 10, cores=0.001, used_bytes=1e6)
    alone = recommend(usage, ONE)
    assert (alone.cpu_millicores.target[0], alone.memory_bytes.target[0]) == (25, 250 << 20)
    shared = recommend(usage, ONE, np.array([2]))
    assert (shared.cpu_millicores.target[0], shared.memory_bytes.target[0]) == (13, 125 << 20)
    assert alone.cpu_millicores.lower[0] <= alone.cpu_millicores.target[0] <= alone.cpu_millicores.upper[0]


def test_nothing_is_recommended_without_a_sample() -> None:
    usage = Usage()
    usage.open(ONE)
    found = recommend(usage, ONE, settings=RecommendSettings(margin_ratio=0.0))
    assert np.isnan(found.cpu_millicores.target[0])
    assert np.isnan(found.memory_bytes.upper[0])
    assert found.confidence[0] == 0.0
    assert len(recommend(usage, np.zeros(0, np.intp)).confidence) == 0
