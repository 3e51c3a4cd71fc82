"""Open verdicts of a cluster from its NodeMetric objects. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.kube.interference import EXTENSION_INTERFERENCE, EXTENSION_WORKLOAD, WireExtension
from api.kube.times import epoch_seconds
from api.kube.workload import workload_named


@dataclass(frozen=True, slots=True)
class Loss:
    """A victim that loses time on a node."""

    node: str
    victim: str
    """`namespace/pod`, or what the node calls it."""
    resource: str
    lost_seconds_per_second: float
    culprits: tuple[str, ...]
    age_seconds: float
    """Age of the report."""
    workload: str = ""
    """Of the victim, as `Kind/namespace/name`; empty where the node tells none."""
    shares: tuple[float, ...] = ()
    """Of the culprits in the loss, in their order; empty where the node tells none."""

    def names(self, subject: str) -> bool:
        """Return whether a pod, or a workload `Kind/namespace/name`, is victim or culprit."""
        return subject == self.victim or subject in self.culprits


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """What all victims of a node lose."""

    node: str
    victims: int
    lost_seconds_per_second: float
    age_seconds: float | None
    """Age of the report; None where the node never reported."""


def losses(metrics: Iterable[NodeMetric], now: float) -> Sequence[Loss]:
    """Return the open verdicts, the largest loss first; verdicts that ended and unreadable ones are left out."""
    found = [loss for metric in metrics for loss in _of_node(metric, now)]
    return sorted(found, key=lambda loss: (-loss.lost_seconds_per_second, loss.node, loss.victim))


def by_node(metrics: Sequence[NodeMetric], now: float) -> Sequence[NodeLoss]:
    """Return a row a node, the largest loss first."""
    by_name: dict[str, list[Loss]] = defaultdict(list)
    for loss in losses(metrics, now):
        by_name[loss.node].append(loss)
    rows = []
    for metric in metrics:
        mine = by_name[metric.metadata.name]
        lost = sum(loss.lost_seconds_per_second for loss in mine)
        rows.append(NodeLoss(metric.metadata.name, len({loss.victim for loss in mine}), lost, report_age(metric, now)))
    return sorted(rows, key=lambda row: (-row.lost_seconds_per_second, row.node))


def report_age(metric: NodeMetric, now: float) -> float | None:
    """Return the age of a node's report in seconds; None where it never reported."""
    told = epoch_seconds(metric.status.update_time)
    return None if told is None else max(0.0, now - told)


def workload_in(extensions: Mapping[str, Any] | None) -> str:
    """Return the workload that a pod's entry states as `Kind/namespace/name`; empty where it states none."""
    stated = (extensions or {}).get(EXTENSION_WORKLOAD)
    return stated if isinstance(stated, str) and workload_named(stated) is not None else ""


def _of_node(metric: NodeMetric, now: float) -> Iterable[Loss]:
    age = report_age(metric, now) or 0.0
    pods = ((f"{pod.namespace}/{pod.name}", pod.extensions) for pod in metric.status.pods_metric)
    for victim, extensions in (*pods, ("", metric.status.extensions)):
        stated = (extensions or {}).get(EXTENSION_INTERFERENCE)
        if stated is None:
            continue
        workload = workload_in(extensions) if victim else ""
        for each in _readable(stated).verdicts:
            until = epoch_seconds(each.until)
            if until is None or now < until:
                yield Loss(
                    metric.metadata.name,
                    each.victim or victim,
                    each.resource,
                    each.lost_seconds_per_second,
                    tuple(each.culprits),
                    age,
                    workload,
                    tuple(each.shares),
                )


def _readable(extension: Any) -> WireExtension:
    try:
        return msgspec.convert(extension, WireExtension)
    except (msgspec.ValidationError, RecursionError):
        return WireExtension()
