"""Rings of samples: averages, percentiles, gaps, and their size."""

import math

import numpy as np
import pytest

from koordlet.kube.usage_series import MAX_SLOTS, Quantity, Sample, UsageSeries, percentile


def cpu(value: float) -> Sample:
    return (value, math.nan, math.nan)


def test_averages_and_percentiles_are_of_the_window_and_of_what_was_measured() -> None:
    series = UsageSeries(60.0, 1.0)
    for second in range(1, 41):
        series.append({"steady": cpu(0.5), "late": cpu(math.nan if second <= 30 else second)}, float(second))
    assert series.means(Quantity.CPU, 30.0) == {"steady": 0.5, "late": 35.5}
    assert series.percentiles(Quantity.CPU, 30.0, 0.9) == {"steady": 0.5, "late": 39.0}
    assert series.means(Quantity.CPU, 0.0) == {"steady": 0.5, "late": 35.5}
    assert series.means(Quantity.MEMORY, 0.0) == {}
    assert series.span_seconds(0.0) == 39.0


@pytest.mark.parametrize(
    ("count", "quantile", "expected"),
    [(10, 0.9, 9.0), (10, 0.5, 5.0), (1, 0.5, 1.0), (300, 0.95, 285.0), (300, 0.99, 297.0), (2, 0.1, 1.0)],
    ids=str,
)
def test_the_rank_of_a_percentile(count: int, quantile: float, expected: float) -> None:
    samples = np.arange(count, 0, -1, dtype=np.float64)
    series = UsageSeries(float(count), 1.0)
    for second, value in enumerate(samples):
        series.append({"a": cpu(float(value))}, float(second))
    assert percentile(samples, quantile) == expected
    assert series.percentiles(Quantity.CPU, -1.0, quantile) == {"a": expected}


def test_who_is_gone_leaves_nothing_for_the_next() -> None:
    series = UsageSeries(10.0, 1.0)
    series.append({"old": cpu(8.0), "kept": cpu(1.0)}, 1.0)
    series.forget(["old", "never there"])
    series.append({"new": cpu(2.0), "kept": cpu(1.0)}, 2.0)
    assert series.means(Quantity.CPU, 0.0) == {"new": 2.0, "kept": 1.0}


def test_old_samples_are_overwritten_and_early_ones_left_out() -> None:
    series = UsageSeries(5.0, 1.0)
    for tenth in range(200):
        series.append({"a": cpu(tenth / 10)}, tenth / 10)
    assert len(series.samples("a", Quantity.CPU, -1.0)) == 5
    assert series.samples("nobody", Quantity.CPU, -1.0).size == 0


def test_a_full_node_for_half_an_hour_stays_small() -> None:
    series = UsageSeries(1800.0, 1.0)
    series.append({f"pod-{number}": cpu(1.0) for number in range(110)}, 1.0)
    assert series.nbytes < 3_000_000
    assert len(UsageSeries(1e9, 0.1)._times) == MAX_SLOTS


def test_an_empty_ring_gives_nothing() -> None:
    series = UsageSeries(60.0, 1.0)
    assert series.means(Quantity.CPU, 0.0) == {}
    assert series.span_seconds(0.0) == 0.0
    series.append({}, 1.0)
    assert series.percentiles(Quantity.CPU, 0.0, 0.5) == {}
