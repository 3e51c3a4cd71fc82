"""slo.koordinator.sh NodeMetric: what a node reports about itself and its pods; named like the node."""

from typing import Annotated, Any

import msgspec

from api.crds.definition import OPAQUE, TIME, Column, Definition, among
from api.kube.device import DeviceInfo
from api.kube.meta import ObjectMeta, ResourceList, Wire

Extensions = Annotated[dict[str, Any], OPAQUE]


class AggregatePolicy(Wire, frozen=True, kw_only=True):
    """Windows over which percentiles are reported, as duration texts ("5m")."""

    durations: list[str] = []


class MetricCollectPolicy(Wire, frozen=True, kw_only=True):
    """Measuring and reporting intervals of a node; None leaves them to the agent."""

    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: (
        Annotated[str, among("usageWithHotPageCache", "usageWithoutPageCache", "usageWithPageCache")] | None
    ) = None


class NodeMetricSpec(Wire, frozen=True, kw_only=True):
    """Content of a node's reports."""

    metric_collect_policy: MetricCollectPolicy | None = None


class ResourceMap(Wire, frozen=True, kw_only=True):
    """Amounts in use: cpu in cores, memory in bytes, and devices."""

    resources: ResourceList = {}
    devices: list[DeviceInfo] = []


class AggregatedUsage(Wire, frozen=True, kw_only=True):
    """Usage by statistic (avg, p50, p90, p95, p99) over a window; duration "0s" when data were short."""

    usage: dict[str, ResourceMap] = {}
    duration: str = "0s"


class NumaUsage(Wire, frozen=True, kw_only=True):
    """Usage of one NUMA node."""

    numa_node_id: int = msgspec.field(name="numaNodeID")
    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()


class NodeUsage(Wire, frozen=True, kw_only=True):
    """Usage of the whole node; system is the node less its pods and host applications."""

    node_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: list[AggregatedUsage] = []
    system_usage: ResourceMap = ResourceMap()
    aggregated_system_usages: list[AggregatedUsage] = []
    numa_usages: list[NumaUsage] = []


class PodUsage(Wire, frozen=True, kw_only=True):
    """Usage of one pod."""

    name: str
    namespace: str
    pod_usage: ResourceMap = ResourceMap()
    priority: str = ""
    qos: str = ""
    extensions: Extensions | None = None


class HostApplicationUsage(Wire, frozen=True, kw_only=True):
    """Usage of a process group that is no pod."""

    name: str
    usage: ResourceMap = ResourceMap()
    priority: str = ""
    qos: str = ""


class PredictedAmount(Wire, frozen=True, kw_only=True):
    """A predicted amount; safety margins are in it already."""

    resource: ResourceMap = ResourceMap()


class NodeMetricStatus(Wire, frozen=True, kw_only=True):
    """The last report."""

    update_time: Annotated[str, TIME] | None = None
    node_metric: NodeUsage | None = None
    pods_metric: list[PodUsage] = []
    host_application_metric: list[HostApplicationUsage] = []
    prod_reclaimable_metric: PredictedAmount | None = None
    prod_peak_metric: PredictedAmount | None = None
    extensions: Extensions | None = None
    """What the node states besides (`api.kube.interference`)."""


class NodeMetric(Wire, frozen=True, kw_only=True):
    """Usage of a node, written by its agent."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


NODE_METRIC = Definition(
    "NodeMetric",
    "nodemetrics",
    "slo.koordinator.sh",
    NodeMetric,
    columns=(Column("Updated", ".status.updateTime", "date"),),
)
