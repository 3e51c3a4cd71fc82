"""Colocation strategy of a node: defaults, ConfigMap, then the node's own annotation and labels."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from api.crds.definition import OPAQUE, among, between
from api.crds.node_metric import AggregatePolicy, MetricCollectPolicy
from api.kube.meta import Wire
from controllers.slo.layers import Plain, overlay
from controllers.slo.ranges import problems

ANNOTATION_COLOCATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
LABEL_RATIOS = {
    "node.koordinator.sh/cpu-reclaim-ratio": "cpuReclaimThresholdPercent",
    "node.koordinator.sh/memory-reclaim-ratio": "memoryReclaimThresholdPercent",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "midStaticCPUReservedPercent",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "midStaticMemoryReservedPercent",
}
"""Labels whose fraction overrides a percent."""

Percent = Annotated[int, between(0, 100)]
Share = Annotated[int, between(0)]
"""A percent that may exceed 100."""


class ColocationStrategy(Wire, frozen=True, kw_only=True):
    """Strategy of overcommit; every default is Koordinator's."""

    enable: bool = False
    metric_aggregate_duration_seconds: Annotated[int, between(1)] = 300
    metric_report_interval_seconds: Annotated[int, between(1)] = 60
    metric_aggregate_policy: AggregatePolicy = AggregatePolicy(durations=["5m", "10m", "30m"])
    metric_memory_collect_policy: Annotated[
        str, among("usageWithHotPageCache", "usageWithoutPageCache", "usageWithPageCache")
    ] = "usageWithoutPageCache"
    cpu_reclaim_threshold_percent: Share = 60
    memory_reclaim_threshold_percent: Share = 65
    cpu_calculate_policy: Annotated[str, among("usage", "maxUsageRequest")] = "usage"
    memory_calculate_policy: Annotated[str, among("usage", "request", "maxUsageRequest")] = "usage"
    degrade_time_minutes: Annotated[int, between(1)] = 15
    update_time_threshold_seconds: Annotated[int, between(1)] = 300
    resource_diff_threshold: Annotated[float, msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1})] = (
        0.1
    )
    mid_reclaim_mode: Annotated[str, among("", "static")] = ""
    mid_cpu_threshold_percent: Percent = msgspec.field(default=100, name="midCPUThresholdPercent")
    mid_memory_threshold_percent: Percent = 100
    mid_unallocated_percent: Percent = 0
    mid_static_cpu_reserved_percent: Percent = msgspec.field(default=0, name="midStaticCPUReservedPercent")
    mid_static_memory_reserved_percent: Percent = 0
    batch_cpu_threshold_percent: Share | None = msgspec.field(default=None, name="batchCPUThresholdPercent")
    batch_memory_threshold_percent: Share | None = None
    extensions: Annotated[dict[str, Any], OPAQUE] = {}


DEFAULTS = ColocationStrategy()


def collect_policy(strategy: ColocationStrategy) -> MetricCollectPolicy:
    """Return what a node is to report under a strategy; the defaults where colocation is off."""
    chosen = strategy if strategy.enable else DEFAULTS
    return MetricCollectPolicy(
        aggregate_duration_seconds=chosen.metric_aggregate_duration_seconds,
        report_interval_seconds=chosen.metric_report_interval_seconds,
        node_aggregate_policy=chosen.metric_aggregate_policy,
        node_memory_collect_policy=chosen.metric_memory_collect_policy,
    )


def of_node(
    strategy: Plain, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[ColocationStrategy, list[str]]:
    """Return the strategy of a node whose ConfigMap layers give `strategy`, and what of the node's own was refused."""
    refused: list[str] = []
    text = annotations.get(ANNOTATION_COLOCATION_STRATEGY)
    if text:
        try:
            own = msgspec.json.decode(text)
            merged = overlay(strategy, own) if isinstance(own, dict) else None
        except (msgspec.DecodeError, RecursionError):
            merged = None
        wrong = ["it is no JSON object"] if merged is None else problems(ColocationStrategy, merged)
        if merged is not None and not wrong:
            strategy = merged
        else:
            refused.append(f"annotation {ANNOTATION_COLOCATION_STRATEGY}: {'; '.join(wrong)}")
    ratios = {field: percent for label, field in LABEL_RATIOS.items() if (percent := _percent(labels.get(label)))}
    zero = {field: 0 for label, field in LABEL_RATIOS.items() if _percent(labels.get(label)) == 0}
    chosen = msgspec.convert({**strategy, **ratios, **zero}, ColocationStrategy)
    return chosen, refused


def _percent(text: str | None) -> int | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    # A percent beyond any machine is a slip, and infinity no number.
    return int(value * 100 + 1e-9) if 0 <= value <= 1e6 else None
