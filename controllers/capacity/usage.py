"""What of one node is taken: sums over its pods and host applications, from objects to one row of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from api.cpuset import parse_cpuset
from api.crds import NodeMetric
from api.crds.node_metric import PodUsage
from api.kube.numa import NodeReservation
from api.kube.times import epoch_seconds
from api.protocol import ANNOTATION_NODE_CPU_NORMALIZATION_RATIO, ANNOTATION_NODE_RESERVATION
from api.qos import PriorityBand, QoSClass
from cluster.resources import Key
from controllers.capacity.pods import LOW_BANDS, Amounts, PodFacts, amounts, total
from controllers.kinds import Node

ZERO: Amounts = (0, 0)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """Numbers of one node; pairs are millicores and bytes."""

    capacity: Amounts
    reserved: Amounts
    """The larger of the kubelet's reservation and the annotation's, resource by resource."""
    system_used: Amounts = ZERO
    """Without host applications."""
    applications_prod: Amounts = ZERO
    applications_mid: Amounts = ZERO
    high_request: Amounts = ZERO
    """Of pods that are neither batch nor free."""
    high_used: Amounts = ZERO
    """The same by usage; by request for pods without a metric, and for the cpu of LSE pods."""
    high_max_used_request: Amounts = ZERO
    """The larger of usage and request of pods with a metric. Pods without one are missing, as in Koordinator."""
    prod_request: Amounts = ZERO
    """Of pods that are not mid, batch or free."""
    node_used: Amounts = ZERO
    node_used_known: bool = False
    prod_reclaimable: Amounts = ZERO
    updated_seconds: float | None = None
    """Time of the last report; None for none."""
    normalization_ratio: float = 1.0
    pods_without_metric: int = 0
    dangling_metrics: int = 0


def row_of(node: Node, metric: NodeMetric | None, pods: Mapping[Key, PodFacts]) -> NodeRow:
    """Return the numbers of a node with its report and its pods."""
    capacity, reserved = amounts(node.status.capacity), reserved_of(node)
    ratio = ratio_of(node)
    prod_request = total(
        facts.requests for facts in pods.values() if facts.band not in LOW_BANDS and facts.band is not PriorityBand.MID
    )
    high_request = total(facts.requests for facts in pods.values() if facts.band not in LOW_BANDS)
    if metric is None or metric.status.node_metric is None:
        return NodeRow(
            capacity, reserved, high_request=high_request, prod_request=prod_request, normalization_ratio=ratio
        )
    status = metric.status
    assert status.node_metric is not None
    measured = {Key(each.namespace, each.name): each for each in status.pods_metric}
    used: list[Amounts] = []
    larger: list[Amounts] = []
    without = 0
    for key, facts in pods.items():
        report = measured.pop(key, None)
        if facts.band in LOW_BANDS:
            continue
        if report is None:
            used.append(facts.requests)
            without += 1
            continue
        usage = amounts(report.pod_usage.resources)
        used.append((facts.requests[0], usage[1]) if facts.qos is QoSClass.LSE else usage)
        larger.append((max(facts.requests[0], usage[0]), max(facts.requests[1], usage[1])))
    # A pod that is reported and has no object still uses what it uses.
    dangling = [amounts(each.pod_usage.resources) for each in measured.values() if not is_low(each)]
    node_usage = status.node_metric.node_usage.resources
    reclaimable = status.prod_reclaimable_metric
    return NodeRow(
        capacity,
        reserved,
        system_used=amounts(status.node_metric.system_usage.resources),
        applications_prod=_applications(metric, PriorityBand.PROD),
        applications_mid=_applications(metric, PriorityBand.MID),
        high_request=high_request,
        high_used=total([*used, *dangling]),
        high_max_used_request=total([*larger, *dangling]),
        prod_request=prod_request,
        node_used=amounts(node_usage),
        node_used_known="cpu" in node_usage and "memory" in node_usage,
        prod_reclaimable=amounts(reclaimable.resource.resources) if reclaimable else ZERO,
        updated_seconds=epoch_seconds(status.update_time),
        normalization_ratio=ratio,
        pods_without_metric=without,
        dangling_metrics=len(dangling),
    )


def reserved_of(node: Node) -> Amounts:
    """Return what pods may not have: the larger of the kubelet's reservation and that of the annotation."""
    raw = node.status.allocatable
    capacity, allocatable = amounts(node.status.capacity), amounts(raw)
    kubelet = tuple(max(0, have - give) if raw else 0 for have, give in zip(capacity, allocatable, strict=True))
    annotated = _annotated(node.metadata.annotations.get(ANNOTATION_NODE_RESERVATION))
    return max(kubelet[0], annotated[0]), max(kubelet[1], annotated[1])


def _annotated(text: str | None) -> Amounts:
    if not text:
        return ZERO
    try:
        stated = msgspec.json.decode(text, type=NodeReservation)
        cpus = len(parse_cpuset(stated.reserved_cpus)) if stated.reserved_cpus else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ZERO
    cpu, memory = amounts(stated.resources)
    return (cpu if cpus is None else 1000 * cpus), memory


def ratio_of(node: Node) -> float:
    """Return the node's CPU normalization ratio; 1 without a usable one."""
    try:
        ratio = float(node.metadata.annotations.get(ANNOTATION_NODE_CPU_NORMALIZATION_RATIO, ""))
    except ValueError:
        return 1.0
    return ratio if 1.0 < ratio <= 5.0 else 1.0


def _applications(metric: NodeMetric, band: PriorityBand) -> Amounts:
    return total(
        amounts(each.usage.resources)
        for each in metric.status.host_application_metric
        if stated_band(each.priority, each.qos) is band
    )


def is_low(report: PodUsage) -> bool:
    """Return whether a report is that of a batch or free pod."""
    return stated_band(report.priority, report.qos) in LOW_BANDS


def stated_band(priority: str, qos: str) -> PriorityBand:
    """Return the band that a report states; else batch for BE and prod for all other classes."""
    if priority in frozenset(PriorityBand) and priority:
        return PriorityBand(priority)
    return PriorityBand.BATCH if qos == QoSClass.BE else PriorityBand.PROD
