"""The status of a NodeMetric: figures, classes, order, windows that are still cold, and what is left out."""

import math
from collections.abc import Mapping

import msgspec
import pytest

from api.crds import NodeMetric
from api.crds.node_metric import MetricCollectPolicy, NodeMetricSpec, NodeMetricStatus
from api.kube.device import DeviceInfo
from api.kube.device_use import DeviceSample
from api.kube.interference import EXTENSION_THROTTLED, EXTENSION_WAITED, WantedTaint, WireVerdict
from api.kube.resources import CPU, MEMORY
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from api.qos import QoSClass
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import NO_PODS, PodFacts, PodTable
from koordlet.kube.node_metric import Stated, UsageHistory, go_duration, status_of
from koordlet.kube.report_policy import ReportPolicy, policy_of
from koordlet.kube.usage_meter import TickUsage
from koordlet.kube.usage_series import Quantity, Sample
from koordlet.prediction.predictors import Prediction
from scheduler.load.report import load_of

WALL = 1_700_000_000.0
GIB = float(1 << 30)
PODS = PodTable(
    [
        PodFacts("shop/web", QoSClass.LS, 9500, uid="w", kube_qos="Burstable"),
        PodFacts("a/guaranteed", uid="g", kube_qos="Guaranteed"),
        PodFacts("a-b/best", uid="b", kube_qos="BestEffort"),
        PodFacts("kube-system/proxy", QoSClass.SYSTEM, 2_000_001_000, uid="p", kube_qos="BestEffort"),
        PodFacts("shop/static", QoSClass.SYSTEM, uid="s", cgroup_uid="hash", kube_qos="Burstable", static=True),
        PodFacts(
            "shop/batch",
            QoSClass.BE,
            5500,
            uid="x",
            kube_qos="BestEffort",
            labels={"koordinator.sh/priority-class": "koord-free"},
        ),
        PodFacts("shop/unmeasured", uid="u"),
    ],
    generation=1,
)


def history(seconds: int = 400, pods: Mapping[str, Sample] | None = None) -> UsageHistory:
    made = UsageHistory(1.0)
    usages = pods if pods is not None else dict.fromkeys(("w", "g", "b", "p", "hash", "x"), (0.0267, GIB, 2 * GIB))
    for second in range(seconds):
        usage = TickUsage((2.0, 4 * GIB, 6 * GIB), (0.5, GIB, GIB), usages, {"proxy": (0.25, GIB, GIB)})
        made.add(usage, float(second))
    return made


def status(made: UsageHistory, policy: ReportPolicy | None = None, **given: object) -> NodeMetricStatus:
    stated = Stated(**{"pods": PODS, **given})  # type: ignore[arg-type]
    return status_of(made, policy or ReportPolicy(), stated, now_seconds=399.0, wall_seconds=WALL)


def test_the_node_and_its_pods_by_namespace_and_name_with_default_classes() -> None:
    made = status(history())
    assert made.update_time == "2023-11-14T22:13:20Z"
    assert made.node_metric is not None
    assert made.node_metric.node_usage.resources == {CPU: "2", MEMORY: "4294967296"}
    assert made.node_metric.system_usage.resources == {CPU: "500m", MEMORY: "1073741824"}
    assert [(pod.namespace, pod.name, pod.priority, pod.qos) for pod in made.pods_metric] == [
        ("a", "guaranteed", "koord-prod", "LSR"),
        ("a-b", "best", "koord-batch", "BE"),
        ("kube-system", "proxy", "koord-prod", "SYSTEM"),
        ("shop", "batch", "koord-free", "BE"),
        ("shop", "static", "koord-prod", "SYSTEM"),
        ("shop", "web", "koord-prod", "LS"),
    ]
    assert made.pods_metric[0].pod_usage.resources == {CPU: "26m", MEMORY: "1073741824"}


def test_percentiles_of_windows_that_are_at_least_half_full() -> None:
    made = status(history())
    assert made.node_metric is not None
    found = {entry.duration: entry.usage for entry in made.node_metric.aggregated_node_usages}
    assert found.keys() == {"5m0s", "10m0s"}, "half an hour is still cold"
    assert found["5m0s"].keys() == {"avg", "p50", "p90", "p95", "p99"}
    assert found["10m0s"]["p99"].resources == {CPU: "2", MEMORY: "4294967296"}
    assert len(made.node_metric.aggregated_system_usages) == 2


def test_the_scheduler_reads_it() -> None:
    document = msgspec.to_builtins(status(history()))
    load = load_of(msgspec.convert({"status": document}, NodeMetric))
    assert load.usage == {CPU: 2000, MEMORY: 4 << 30}
    assert load.aggregated["p95", 300.0] == {CPU: 2000, MEMORY: 4 << 30}
    assert load.pods["shop/web"].usage == {CPU: 26, MEMORY: 1 << 30}
    assert (load.pods["shop/web"].prod, load.pods["shop/batch"].prod) == (True, False)


def test_memory_by_policy() -> None:
    made = status(history(), ReportPolicy(memory=Quantity.MEMORY_WITH_CACHE))
    assert made.node_metric is not None
    assert made.node_metric.node_usage.resources[MEMORY] == str(6 << 30)
    assert made.pods_metric[0].pod_usage.resources[MEMORY] == str(2 << 30)


def test_what_was_not_measured_is_left_out_and_never_zero() -> None:
    half = {"w": (0.5, math.nan, math.nan), "g": (math.nan, math.nan, math.nan)}
    made = status(history(pods=half))
    assert [(pod.name, dict(pod.pod_usage.resources)) for pod in made.pods_metric] == [("web", {CPU: "500m"})]
    empty = status(UsageHistory(1.0), pods=NO_PODS)
    assert empty.node_metric is None
    assert empty.pods_metric == []


def test_host_applications_and_predictions() -> None:
    apps = {"proxy": HostApplicationGroup("proxy", QoSClass.LS, "koord-prod"), "gone": HostApplicationGroup("gone")}
    prediction = Prediction({CPU: 2380, MEMORY: 0}, {CPU: 4000, MEMORY: 1 << 30})
    made = status(history(), applications=apps, prediction=prediction)
    (app,) = made.host_application_metric
    assert (app.name, app.priority, app.qos, app.usage.resources[CPU]) == ("proxy", "koord-prod", "LS", "250m")
    assert made.prod_reclaimable_metric is not None
    assert made.prod_reclaimable_metric.resource.resources == {CPU: "2380m", MEMORY: "0"}
    assert made.prod_peak_metric is not None
    assert made.prod_peak_metric.resource.resources == {CPU: "4", MEMORY: "1073741824"}


def test_verdicts_and_taints_travel_in_extensions_and_end_after_three_intervals() -> None:
    verdicts = [WireVerdict(resource="cpu", victim=name) for name in ("shop/web", "/system.slice/x.service")]
    taint = WantedTaint(key="node.koordinator.sh/eviction-cooldown", value="evicted", strategy="eviction_cooldown")
    made = status(history(), verdicts=verdicts, taints=[taint])
    web = next(pod for pod in made.pods_metric if pod.name == "web")
    until = "2023-11-14T22:16:20Z"
    assert web.extensions == {"interference": {"verdicts": [{"resource": "cpu", "until": until}]}}
    assert made.extensions is not None
    assert made.extensions["interference"]["verdicts"][0]["victim"] == "/system.slice/x.service"
    assert made.extensions["wantedTaints"] == [
        {
            "key": "node.koordinator.sh/eviction-cooldown",
            "value": "evicted",
            "strategy": "eviction_cooldown",
            "until": until,
        }
    ]
    assert status(history()).extensions is None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(None, ReportPolicy(), id="no policy"),
        pytest.param({}, ReportPolicy(), id="empty policy"),
        pytest.param(
            {"reportIntervalSeconds": 1, "aggregateDurationSeconds": 5}, ReportPolicy(30.0, 60.0), id="too often"
        ),
        pytest.param({"reportIntervalSeconds": 0}, ReportPolicy(), id="zero"),
        pytest.param({"aggregateDurationSeconds": 10**9}, ReportPolicy(60.0, 3600.0), id="too long"),
        pytest.param(
            {"nodeAggregatePolicy": {"durations": ["5m0s", "rubbish", "-5m", "100h", "5m", "90s"]}},
            ReportPolicy(durations=(300.0, 90.0)),
            id="windows",
        ),
        pytest.param(
            {"nodeMemoryCollectPolicy": "usageWithPageCache"},
            ReportPolicy(memory=Quantity.MEMORY_WITH_CACHE),
            id="with cache",
        ),
        pytest.param({"nodeMemoryCollectPolicy": "usageWithHotPageCache"}, ReportPolicy(), id="hot cache"),
    ],
)
def test_what_the_spec_asks_for(asked: object, expected: ReportPolicy) -> None:
    policy = None if asked is None else msgspec.convert(asked, MetricCollectPolicy)
    assert policy_of(NodeMetricSpec(metric_collect_policy=policy)) == expected


def test_a_longer_window_begins_anew_and_a_shorter_one_keeps_what_there_is() -> None:
    made = history()
    made.follow(ReportPolicy(aggregate_seconds=60.0))
    assert made.pods.span_seconds(-1.0) > 200.0
    made.follow(ReportPolicy(aggregate_seconds=1200.0))
    assert made.pods.keys == ()
    assert made.node.span_seconds(-1.0) > 300.0


def test_who_is_gone_is_forgotten() -> None:
    made = history()
    made.add(TickUsage(pods={"w": (1.0, GIB, GIB)}), 400.0)
    assert made.pods.keys == ("w",)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(300.0, "5m0s"), (1800.0, "30m0s"), (3600.0, "1h0m0s"), (90.5, "1m30.5s"), (5.0, "5s")],
    ids=str,
)
def test_durations_as_go_writes_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_all_of_a_full_node_is_small() -> None:
    made = history(5, {f"pod-{number}": (1.0, GIB, GIB) for number in range(110)})
    assert made.nbytes < 1_300_000


def test_devices_stand_beside_the_usage_of_node_and_pods() -> None:
    """Averages over the window of the averages, percentiles where the node's own are, of the node alone."""
    made = history()
    for second in range(400):
        core = 100.0 if second % 50 == 0 else 10.0
        used = DeviceSample("gpu", "GPU-0", 0, core, 4 << 30, 8 << 30)
        made.devices.add({"": [used], "hash": [used], "gone": [used]}, float(second))
    told = status(made)
    assert told.node_metric is not None
    resources = {GPU_CORE: "11", GPU_MEMORY: str(4 << 30), GPU_MEMORY_RATIO: "50"}
    average = DeviceInfo(type="gpu", id="GPU-0", health=True, resources=resources)
    peak = DeviceInfo(type="gpu", id="GPU-0", health=True, resources={**resources, GPU_CORE: "100"})
    usual = DeviceInfo(type="gpu", id="GPU-0", health=True, resources={**resources, GPU_CORE: "10"})
    assert told.node_metric.node_usage.devices == [average]
    assert told.node_metric.system_usage.devices == []
    of_window = told.node_metric.aggregated_node_usages[0].usage
    assert {kind: each.devices for kind, each in of_window.items()} == {
        "avg": [average],
        "p50": [usual],
        "p90": [usual],
        "p95": [usual],
        "p99": [peak],
    }
    assert not any(
        each.devices for window in told.node_metric.aggregated_system_usages for each in window.usage.values()
    )
    assert {pod.name: pod.pod_usage.devices for pod in told.pods_metric if pod.pod_usage.devices} == {
        "static": [average]
    }


@pytest.mark.parametrize(("field", "key"), [("throttled", EXTENSION_THROTTLED), ("waited", EXTENSION_WAITED)])
def test_lost_time_is_stated_of_the_pods_that_lost_any(field: str, key: str) -> None:
    made = status(history(), **{field: {"w": 0.25, "hash": 0.0}})
    stated = {pod.name: (pod.extensions or {}).get(key) for pod in made.pods_metric}
    assert stated["web"] == 0.25
    assert stated["static"] == 0.0
    assert stated["guaranteed"] is None
