"""The metric table: every line says in words what it is, and every histogram has its sum."""

import pytest

from api.metrics import BY_COLUMN, METRICS, Metric, MetricKind, Unit

HISTOGRAMS = [pytest.param(metric, id=metric.column) for metric in METRICS if metric.kind is MetricKind.HISTOGRAM]


@pytest.mark.parametrize("metric", HISTOGRAMS)
def test_the_sum_of_a_histogram_is_a_counter_of_nanoseconds_in_the_same_table(metric: Metric) -> None:
    total = BY_COLUMN[metric.sum_column]
    assert (total.unit, total.kind, total.table) == (Unit.NS, MetricKind.COUNTER, metric.table)


def test_no_two_histograms_share_a_sum() -> None:
    sums = [metric.sum_column for metric in METRICS if metric.sum_column]
    assert len(sums) == len(set(sums)) == len(HISTOGRAMS)


@pytest.mark.parametrize("metric", [pytest.param(metric, id=metric.column) for metric in METRICS])
def test_help_is_words(metric: Metric) -> None:
    assert " " in metric.help, metric.help
    assert metric.help not in set(Unit)


def test_columns_are_unique() -> None:
    assert len(BY_COLUMN) == len(METRICS)
