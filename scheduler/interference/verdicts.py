"""Live verdicts as a node states them: victims, resources and culprits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.kube.interference import EXTENSION_INTERFERENCE, RESOURCES, WireExtension, WireVerdict
from api.kube.times import epoch_seconds

_ALIASES = {"blockio": "block-io", "net": "network", "llc": "cache", "membw": "memory-bandwidth"}


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """A victim on the node loses time on a resource, until further notice or a time."""

    resource: str
    victim: str
    culprits: tuple[str, ...]
    lost: float
    """Lost seconds per second."""
    until_seconds: float | None

    def live(self, now: float) -> bool:
        """Return whether it still holds."""
        return self.until_seconds is None or now < self.until_seconds


def from_metric(metric: NodeMetric) -> tuple[NodeVerdict, ...]:
    """The verdicts in the extensions of the reported pods and of the status; unreadable ones are passed over."""
    status = metric.status
    victims = [(f"{pod.namespace}/{pod.name}", pod.extensions) for pod in status.pods_metric]
    found: list[NodeVerdict] = []
    for victim, extensions in (*victims, ("", status.extensions)):
        extension: Any = (extensions or {}).get(EXTENSION_INTERFERENCE)
        if extension is None:
            continue
        try:
            listed = msgspec.convert(extension, WireExtension).verdicts
        except (msgspec.ValidationError, RecursionError):
            continue
        found.extend(_verdicts(listed, victim=victim))
    return tuple(found)


def _verdicts(listed: Iterable[WireVerdict], victim: str = "") -> Iterable[NodeVerdict]:
    for each in listed:
        resource = _ALIASES.get(each.resource, each.resource)
        if resource in RESOURCES:
            yield NodeVerdict(
                resource,
                each.victim or victim,
                tuple(filter(None, each.culprits)),
                each.lost_seconds_per_second,
                epoch_seconds(each.until),
            )
