"""What is known of pods besides their cgroups: classes, labels, amounts. The kubelet's and the API server's to tell."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.qos import QoSClass


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod; amounts by resource name as in `api.resources`."""

    name: str
    """`namespace/pod`."""
    qos: QoSClass = QoSClass.NONE
    """As labelled."""
    priority: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    active: bool = True


FactsOf = Callable[[str], PodFacts | None]
"""Facts of the pod with this uid; None where nobody tells them."""


def nobody_tells(_uid: str) -> PodFacts | None:
    """Without Kubernetes."""
    return None
