"""From a NodeMetric object to the figures that load rules need."""

from api.crds.node_metric import NodeMetric, ResourceMap
from api.kube.resources import Resources, parse_resources
from api.kube.times import duration_seconds, epoch_seconds
from api.qos import PriorityBand
from scheduler.load.node import NodeLoad, PodLoad

DEFAULT_INTERVAL_SECONDS = 60.0


def load_of(metric: NodeMetric) -> NodeLoad:
    """Decode a report. Raises QuantityError for an unreadable amount."""
    policy, status = metric.spec.metric_collect_policy, metric.status
    interval = float(policy.report_interval_seconds or 0) if policy else 0.0
    node = status.node_metric
    if node is None:
        return NodeLoad(epoch_seconds(status.update_time), interval or DEFAULT_INTERVAL_SECONDS)
    return NodeLoad(
        update_seconds=epoch_seconds(status.update_time),
        report_interval_seconds=interval or DEFAULT_INTERVAL_SECONDS,
        usage=_amounts(node.node_usage),
        aggregated={
            (kind, duration_seconds(entry.duration) or 0.0): _amounts(usage)
            for entry in node.aggregated_node_usages
            for kind, usage in entry.usage.items()
        },
        system=_amounts(node.system_usage),
        pods={
            f"{pod.namespace}/{pod.name}": PodLoad(_amounts(pod.pod_usage), pod.priority == PriorityBand.PROD)
            for pod in status.pods_metric
        },
    )


def _amounts(usage: ResourceMap) -> Resources:
    return parse_resources(usage.resources)
