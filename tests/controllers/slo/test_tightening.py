"""Thresholds ahead of a forecast peak: in steps, not back and forth, and back once the use is there."""

import json
from typing import Any

import pytest

from api.crds.node_slo import NodeSLO, NodeSLOSpec, ResourceThresholdStrategy
from api.kube.meta import ObjectMeta
from api.kube.times import rfc3339
from cluster import DeltaType, Key, StoreDelta
from controllers.capacity.forecasts import ServicePeak
from controllers.kinds import CONFIG_MAP, NODE, NODE_METRIC, NODE_SLO, ConfigMap
from controllers.plans.node_slo import NodeSLOs
from controllers.slo.tightening import SUPPRESS, growth_percent, lowered
from tests.capacity import NOW, a_node, a_report, a_usage
from tests.managed import CONFIG, built, copy_of

BEGIN = NOW // 86400 * 86400
CONFIGURED = {"resource-threshold-config": json.dumps({"clusterStrategy": {"enable": True}})}
PEAK = ServicePeak(20_000.0, {500: 26_000, 501: 60_000})
"""Services use 20 cores, and are forecast to use 26 in the hour under way, 60 in the next."""


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0.0, 6_000.0, id="this hour"),
        pytest.param(2699.0, 6_000.0, id="the next is too far away"),
        pytest.param(2700.0, 40_000.0, id="the next is a quarter of an hour away"),
        pytest.param(7200.0, 0.0, id="the forecast is old"),
    ],
)
def test_what_services_are_forecast_to_use_on_top(seconds: float, expected: float) -> None:
    assert PEAK.growth_millicores(500 * 3600 + seconds, 900.0) == expected
    assert ServicePeak(99_000.0, PEAK.peaks).growth_millicores(500 * 3600 + seconds, 900.0) == 0.0


@pytest.mark.parametrize(
    ("growth", "current", "expected"),
    [
        pytest.param(0.0, 65, 65, id="nothing comes"),
        pytest.param(6.0, 65, 55, id="in steps"),
        pytest.param(6.0, 60, 55, id="more than before"),
        pytest.param(3.0, 55, 55, id="a little less than before"),
        pytest.param(2.0, 55, 60, id="much less than before"),
        pytest.param(0.1, 60, 60, id="a step stays while a growth is left"),
        pytest.param(0.0, 60, 65, id="the last step comes back"),
        pytest.param(0.0, 55, 65, id="the peak is there"),
        pytest.param(100.0, None, 0, id="all"),
    ],
)
def test_thresholds_are_lowered_in_steps_and_do_not_swing(growth: float, current: int | None, expected: int) -> None:
    strategy = {"enable": True, SUPPRESS: 65}
    assert lowered(strategy, growth, current)[SUPPRESS] == expected


@pytest.mark.parametrize("current", [65, 53, 50], ids=str)
def test_a_threshold_is_lowered_by_no_more_than_the_most(current: int) -> None:
    assert lowered({"enable": True, SUPPRESS: 65}, 40.0, current, 12)[SUPPRESS] == 53


@pytest.mark.parametrize("strategy", [{"enable": False, SUPPRESS: 65}, {"enable": True}, {}], ids=str)
def test_what_is_off_is_not_tightened(strategy: dict[str, Any]) -> None:
    assert lowered(strategy, 50.0, None) == strategy


def test_batch_pods_make_room_before_the_morning() -> None:
    """Services use 10 of 100 cores, from 9 to 17 o'clock 30; batch pods use 20 all day."""

    def report(hour: int) -> list[Any]:
        services = 30 if 9 <= hour % 24 < 17 else 10
        pods = [a_usage("batch", "20", "1G", qos="BE")]
        made = a_report(used=(services + 20, "1G"), pods=pods, updated=rfc3339(BEGIN + hour * 3600))
        return [StoreDelta(DeltaType.UPDATED, Key("", "n1"), None, made)]

    def threshold(hour: int, minute: int, **settings: Any) -> int:
        controller = built(NodeSLOs, **settings)
        shown = ConfigMap(metadata=ObjectMeta(name=CONFIG.name, namespace=CONFIG.namespace), data=CONFIGURED)
        copy = copy_of(controller, {CONFIG_MAP: [shown], NODE: [a_node("n1", 100)]})
        copy.view("it", full=True)
        for each in range(6 * 24 + hour + 1 if settings else 0):
            copy.apply(NODE_METRIC, report(each))
        now = BEGIN + (6 * 24 + hour) * 3600 + minute * 60
        (write,) = controller.plan(copy.view("it", full=True), now).writes
        return int(write.body["spec"]["resourceUsedThresholdWithBE"][SUPPRESS])

    assert threshold(8, 50) == 65
    assert threshold(8, 10, tighten_ahead=True) == 65
    assert threshold(8, 50, tighten_ahead=True) == 45
    assert threshold(9, 10, tighten_ahead=True) >= 60, "services use what was forecast"


def test_a_raised_threshold_reaches_its_node() -> None:
    before = ResourceThresholdStrategy(enable=True, cpu_suppress_threshold_percent=65)
    stated = NodeSLO(metadata=ObjectMeta(name="n1"), spec=NodeSLOSpec(resource_used_threshold_with_be=before))
    data = {"resource-threshold-config": json.dumps({"clusterStrategy": {"enable": True, SUPPRESS: 70}})}
    shown = ConfigMap(metadata=ObjectMeta(name=CONFIG.name, namespace=CONFIG.namespace), data=data)
    controller = built(NodeSLOs)
    copy = copy_of(controller, {CONFIG_MAP: [shown], NODE: [a_node("n1", 100)], NODE_SLO: [stated]})
    (write,) = controller.plan(copy.view("it", full=True), NOW).writes
    assert write.body["spec"]["resourceUsedThresholdWithBE"][SUPPRESS] == 70


def test_a_growth_is_a_share_of_the_nodes_cpus() -> None:
    now = 500 * 3600.0
    assert growth_percent({"cpu": "100"}, PEAK, now, 900.0) == pytest.approx(6.0)
    for capacity in ({}, {"cpu": "0"}, {"cpu": "many"}):
        assert growth_percent(capacity, PEAK, now, 900.0) == 0.0
    assert growth_percent({"cpu": "100"}, None, now, 900.0) == 0.0
