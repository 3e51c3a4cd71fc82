"""Open verdicts of a cluster from its NodeMetric objects. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.kube.interference import EXTENSION_INTERFERENCE, WireExtension
from api.kube.times import epoch_seconds


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
    found: list[Loss] = []
    for metric in metrics:
        told = epoch_seconds(metric.status.update_time)
        age = max(0.0, now - told) if told is not None else 0.0
        pods = ((f"{pod.namespace}/{pod.name}", pod.extensions) for pod in metric.status.pods_metric)
        for victim, extensions in (*pods, ("", metric.status.extensions)):
            for each in _readable((extensions or {}).get(EXTENSION_INTERFERENCE)).verdicts:
                until = epoch_seconds(each.until)
                if until is None or now < until:
                    name, lost = each.victim or victim, each.lost_seconds_per_second
                    found.append(Loss(metric.metadata.name, name, each.resource, lost, tuple(each.culprits), age))
    return sorted(found, key=lambda loss: (-loss.lost_seconds_per_second, loss.node, loss.victim))


def by_node(metrics: Sequence[NodeMetric], now: float) -> Sequence[NodeLoss]:
    """Return a row a node, the largest loss first."""
    open_losses = losses(metrics, now)
    rows = []
    for metric in metrics:
        mine = [loss for loss in open_losses if loss.node == metric.metadata.name]
        told = epoch_seconds(metric.status.update_time)
        lost = sum(loss.lost_seconds_per_second for loss in mine)
        age = None if told is None else max(0.0, now - told)
        rows.append(NodeLoss(metric.metadata.name, len({loss.victim for loss in mine}), lost, age))
    return sorted(rows, key=lambda row: (-row.lost_seconds_per_second, row.node))


def _readable(extension: Any) -> WireExtension:
    if extension is None:
        return WireExtension()
    try:
        return msgspec.convert(extension, WireExtension)
    except (msgspec.ValidationError, RecursionError):
        return WireExtension()
