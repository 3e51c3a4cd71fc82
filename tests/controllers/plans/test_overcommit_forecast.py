"""Mid resources with the forecast: less is sold ahead of a daily peak, nothing changes without the option."""

from typing import Any

from api.kube.times import rfc3339
from cluster import DeltaType, Key, StoreDelta
from controllers.capacity.forecasts import MIN_HOURS, NodeForecasts
from controllers.kinds import NODE_METRIC
from controllers.plans.overcommit import Overcommit
from tests.capacity import NOW, a_node, a_report
from tests.controllers.plans.test_overcommit import cluster, config
from tests.managed import built, copy_of

DAYS = 6
BEGIN = NOW // 86400 * 86400


def report(hour: int, **more: Any) -> StoreDelta[Any]:
    """Report of an hour: 80 cores are used between 8 and 10 o'clock, else 10."""
    cores = 80 if hour % 24 in (8, 9) else 10
    made = a_report(used=(cores, "1G"), reclaimable=("90", "1G"), updated=rfc3339(BEGIN + hour * 3600), **more)
    return StoreDelta(DeltaType.UPDATED, Key("", "n1"), None, made)


def mid_cpu(hour: int, *, forecast: bool) -> int:
    """Return what is sold of mid in an hour after days of reports."""
    controller = built(Overcommit, forecast=forecast)
    objects = cluster(config(midCPUThresholdPercent=100), [a_node()], [report(0).new])
    copy = copy_of(controller, objects)
    view = copy.view("it", full=True, heard_since_seconds=0.0)
    controller.plan(view, BEGIN)
    for each in range(1, DAYS * 24 + hour + 1):
        copy.apply(NODE_METRIC, [report(each)])
    now = BEGIN + (DAYS * 24 + hour) * 3600
    (write,) = [
        write
        for write in controller.plan(copy.view("it", full=True, heard_since_seconds=now), now).writes
        if write.subresource == "status"
    ]
    return int(write.body["status"]["allocatable"]["kubernetes.io/mid-cpu"]) // 1000


def test_less_is_sold_ahead_of_the_peak_and_all_of_it_after() -> None:
    assert mid_cpu(7, forecast=False) >= 89
    assert mid_cpu(6, forecast=True) >= 80
    assert mid_cpu(8, forecast=True) <= 21
    assert mid_cpu(12, forecast=True) >= 80


def test_nothing_is_forecast_of_a_young_or_a_removed_node() -> None:
    forecasts = NodeForecasts()
    forecasts.apply(NODE_METRIC, [report(0)])
    assert forecasts.value() == {}
    for hour in range(1, MIN_HOURS + 1):
        forecasts.apply(NODE_METRIC, [report(hour)])
    assert forecasts.value() == {}
    forecasts.apply(NODE_METRIC, [report(MIN_HOURS + 1)])
    assert set(forecasts.value()) == {"n1"}
    assert forecasts.value() is forecasts.value(), "made anew after a report alone"
    forecasts.apply(NODE_METRIC, [StoreDelta(DeltaType.DELETED, Key("", "n1"), report(0).new, None)])
    assert forecasts.value() == {}


def test_a_report_without_time_or_usage_is_passed_over() -> None:
    forecasts = NodeForecasts()
    forecasts.value()
    for hour in range(3):
        broken = a_report(updated=None) if hour else a_report(used=None, updated=rfc3339(BEGIN))
        forecasts.apply(NODE_METRIC, [StoreDelta(DeltaType.UPDATED, Key("", "n1"), None, broken)])
    assert forecasts.value() == {}


def test_a_quantity_that_cannot_be_read_leaves_the_forecast() -> None:
    forecasts = NodeForecasts()
    forecasts.value()
    for hour in range(MIN_HOURS + 2):
        forecasts.apply(NODE_METRIC, [report(hour)])
    before = forecasts.value()
    bad = a_report(used=("abc", "1G"), updated=rfc3339(BEGIN + 90 * 3600))
    forecasts.apply(NODE_METRIC, [StoreDelta(DeltaType.UPDATED, Key("", "n1"), None, bad)])
    assert before
    assert forecasts.value() == before


def test_a_report_from_the_future_does_not_end_a_nodes_forecast() -> None:
    forecasts = NodeForecasts()
    forecasts.value()
    for hour in range(MIN_HOURS + 2):
        forecasts.apply(NODE_METRIC, [report(hour)])
    forecasts.apply(NODE_METRIC, [report(24 * 365 * 100)])
    for hour in range(MIN_HOURS + 2, 6 * 24 + 9):
        forecasts.apply(NODE_METRIC, [report(hour)])
    assert forecasts.value()["n1"][0] >= 80_000, "the peak of every morning is forecast as if nothing had been"
    forecasts.apply(NODE_METRIC, [report(6 * 24 + 12)])
    assert forecasts.value()["n1"][0] <= 60_000
