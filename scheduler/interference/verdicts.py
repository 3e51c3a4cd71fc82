"""Live verdicts as a node states them: victims, resources and culprits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.kube.interference import RESOURCES, WireVerdict
from api.kube.meta import Wire
from api.kube.times import epoch_seconds

EXTENSION = "interference"
"""Key in a pod's `extensions` of NodeMetric whose `verdicts` are about that pod as victim."""

_ALIASES = {"blockio": "block-io", "net": "network", "llc": "cache", "membw": "memory-bandwidth"}


class WireExtension(Wire, frozen=True, kw_only=True):
    """Extension of a pod in the annotation."""

    verdicts: list[WireVerdict] = msgspec.field(default_factory=list)


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


def from_annotation(text: str | None) -> tuple[NodeVerdict, ...]:
    """The verdicts of a node annotation; none when it is absent or unreadable."""
    if not text:
        return ()
    try:
        listed = msgspec.json.decode(text, type=list[WireVerdict])
    except msgspec.MsgspecError:
        return ()
    return tuple(_verdicts(listed))


def from_metric(metric: NodeMetric) -> tuple[NodeVerdict, ...]:
    """The verdicts in the extensions of the reported pods."""
    found: list[NodeVerdict] = []
    for pod in metric.status.pods_metric:
        extension: Any = (pod.extensions or {}).get(EXTENSION)
        if extension is None:
            continue
        try:
            listed = msgspec.convert(extension, WireExtension).verdicts
        except msgspec.ValidationError:
            continue
        found.extend(_verdicts(listed, victim=f"{pod.namespace}/{pod.name}"))
    return tuple(found)


def _verdicts(listed: Iterable[WireVerdict], victim: str = "") -> Iterable[NodeVerdict]:
    for each in listed:
        resource = _ALIASES.get(each.resource, each.resource)
        if resource in RESOURCES:
            yield NodeVerdict(
                resource,
                each.victim or victim,
                tuple(each.culprits),
                each.lost_seconds_per_second,
                epoch_seconds(each.until),
            )
