"""QoS class and priority class of a pod, as stated and with the protocol's defaults; its requests."""

from collections.abc import Mapping

from api.kube.objects import Container, Pod
from api.kube.resources import CPU, MEMORY, Resources, add, maximum, parse_resources
from api.protocol import LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS
from api.qos import PriorityBand, QoSClass, priority_band

_CLASSES = {item.value: item for item in QoSClass}
_BANDS = {item.value: item for item in PriorityBand}


def stated_qos(labels: Mapping[str, str]) -> QoSClass:
    """Return the class of the label; NONE without it or for an unknown name."""
    return _CLASSES.get(labels.get(LABEL_QOS_CLASS, ""), QoSClass.NONE)


def stated_band(pod: Pod) -> PriorityBand:
    """Return the band that the label names; without the label that of the priority; NONE for an unknown name."""
    label = pod.metadata.labels.get(LABEL_PRIORITY_CLASS)
    return priority_band(pod.spec.priority) if label is None else _BANDS.get(label, PriorityBand.NONE)


def effective_band(pod: Pod) -> PriorityBand:
    """Return the stated band; without one batch for BE pods, prod for others. Raises QuantityError."""
    band = stated_band(pod)
    if band is not PriorityBand.NONE:
        return band
    qos = stated_qos(pod.metadata.labels)
    best_effort = qos is QoSClass.BE or (qos is QoSClass.NONE and _asks_nothing(pod))
    return PriorityBand.BATCH if best_effort else PriorityBand.PROD


def pod_requests(pod: Pod) -> Resources:
    """Return what a pod requests, cpu in millicores, as the scheduler counts it. Raises QuantityError.

    Containers and sidecars add up; an ordinary init container runs beside the sidecars that precede it.
    """
    running: Resources = {}
    for container in pod.spec.containers:
        running = add(running, requests_of(container))
    sidecars: Resources = {}
    peak: Resources = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = add(sidecars, requests_of(container))
        else:
            peak = maximum(peak, add(sidecars, requests_of(container)))
    total = maximum(add(running, sidecars), peak)
    return add(total, parse_resources(pod.spec.overhead))


def requests_of(container: Container) -> Resources:
    """Return a container's requests; a limit without a request counts as one."""
    resources = container.resources
    return parse_resources({**resources.limits, **resources.requests})


def _asks_nothing(pod: Pod) -> bool:
    return not any(
        amount > 0 and name in (CPU, MEMORY)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name, amount in requests_of(container).items()
    )
