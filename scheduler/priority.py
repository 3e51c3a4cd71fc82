"""QoS class and priority band of a pod, with the defaults where it sets none."""

from collections.abc import Mapping

from api.kube.objects import Container, Pod
from api.kube.resources import CPU, MEMORY, parse_resources
from api.protocol import LABEL_PRIORITY, LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS
from api.qos import PriorityBand, QoSClass, priority_band

_DEFAULT_QOS = {
    "Guaranteed": QoSClass.LSR,
    "Burstable": QoSClass.LS,
    "BestEffort": QoSClass.BE,
}


def qos_of(pod: Pod) -> QoSClass:
    """The class by label; else Guaranteed pods are LSR, Burstable LS and BestEffort BE."""
    label = pod.metadata.labels.get(LABEL_QOS_CLASS, "")
    if label and label in set(QoSClass):
        return QoSClass(label)
    return _DEFAULT_QOS[pod.status.qos_class or kube_qos(pod)]


def band_of(pod: Pod) -> PriorityBand:
    """The band by label, else by priority; else BE pods are batch and all others prod.

    A label that names no known class counts as none, whatever the priority.
    """
    label = pod.metadata.labels.get(LABEL_PRIORITY_CLASS)
    if label is not None:
        band = PriorityBand(label) if label in set(PriorityBand) else PriorityBand.NONE
    else:
        band = priority_band(pod.spec.priority)
    if band is not PriorityBand.NONE:
        return band
    return PriorityBand.BATCH if qos_of(pod) is QoSClass.BE else PriorityBand.PROD


def sub_priority(labels: Mapping[str, str]) -> int:
    """The sub-priority label, 0 when missing or unreadable; orders pods of equal priority."""
    try:
        return int(labels.get(LABEL_PRIORITY, "0"), 0)
    except ValueError:
        return 0


def kube_qos(pod: Pod) -> str:
    """Kubernetes' own class, computed from requests and limits of cpu and memory."""
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    if all(_guaranteed(container) for container in containers) and containers:
        return "Guaranteed"
    asks = any(
        amount > 0
        for container in containers
        for amounts in (container.resources.requests, container.resources.limits)
        for name, amount in parse_resources(amounts).items()
        if name in (CPU, MEMORY)
    )
    return "Burstable" if asks else "BestEffort"


def _guaranteed(container: Container) -> bool:
    limits = parse_resources(container.resources.limits)
    requests = {**limits, **parse_resources(container.resources.requests)}
    return all(limits.get(name, 0) > 0 and requests[name] == limits[name] for name in (CPU, MEMORY))
