"""QoS class and priority class of a pod, as stated and with the protocol's defaults."""

from collections.abc import Mapping

from api.kube.objects import Pod
from api.kube.pod_requests import container_requests
from api.kube.resources import CPU, MEMORY
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


def _asks_nothing(pod: Pod) -> bool:
    return not any(
        amount > 0 and name in (CPU, MEMORY)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name, amount in container_requests(container).items()
    )
