"""Class, band and requests of a pod, as overcommit counts it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from api.kube.meta import Quantity
from api.kube.numa import ResourceStatus
from api.kube.pod_requests import effective_requests
from api.kube.resources import CPU, MEMORY, QuantityError, Resources, parse_quantity
from api.protocol import ANNOTATION_RESOURCE_STATUS, BATCH_CPU, BATCH_MEMORY, LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS
from api.qos import PriorityBand, QoSClass, priority_band
from controllers.kinds import Pod

Amounts = tuple[int, int]
"""Millicores and bytes."""

LOW_BANDS = frozenset({PriorityBand.BATCH, PriorityBand.FREE})
"""Bands that live on what others leave: never counted against it."""
DEFAULT_QOS = {"Guaranteed": QoSClass.LSR, "Burstable": QoSClass.LS, "BestEffort": QoSClass.BE}
_CLASSES = frozenset(QoSClass)
_BANDS = frozenset(PriorityBand)
MAX_NUMA_NODES = 64
MOST = 1 << 55
"""Amounts are cut here (32 PiB), so that sums and percents of what strangers state stay within 64 bits."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What overcommit needs of a running or pending pod on a node."""

    node: str
    qos: QoSClass
    band: PriorityBand
    requests: Amounts
    numa_nodes: tuple[int, ...]
    """NUMA nodes that the pod was given; empty for all."""
    batch: Amounts
    """Requested batch resources."""


def facts_of(pod: Pod) -> PodFacts | None:
    """Return the facts of a pod; None for one that holds nothing of a node (not placed, finished)."""
    if not pod.spec.node_name or pod.status.phase not in ("Running", "Pending"):
        return None
    qos = qos_with_default(pod)
    return PodFacts(
        pod.spec.node_name,
        qos,
        band_with_default(pod, qos),
        requests_of(pod),
        _numa_nodes(pod.metadata.annotations.get(ANNOTATION_RESOURCE_STATUS)),
        total(
            (amount(each.resources.requests, BATCH_CPU, 1), amount(each.resources.requests, BATCH_MEMORY, 1))
            for each in pod.spec.containers
        ),
    )


def qos_with_default(pod: Pod) -> QoSClass:
    """Return the class by label; else LSR for Guaranteed, LS for Burstable and BE for BestEffort pods."""
    label = pod.metadata.labels.get(LABEL_QOS_CLASS, "")
    if label and label in _CLASSES:
        return QoSClass(label)
    return DEFAULT_QOS.get(pod.status.qos_class) or DEFAULT_QOS[_kubernetes_class(pod)]


def band_with_default(pod: Pod, qos: QoSClass) -> PriorityBand:
    """Return the band by label, else by priority; else batch for BE and prod for all other classes."""
    label = pod.metadata.labels.get(LABEL_PRIORITY_CLASS)
    if label is not None:
        band = PriorityBand(label) if label in _BANDS else PriorityBand.NONE
    else:
        band = priority_band(pod.spec.priority)
    if band is not PriorityBand.NONE:
        return band
    return PriorityBand.BATCH if qos is QoSClass.BE else PriorityBand.PROD


def requests_of(pod: Pod) -> Amounts:
    """Return what the scheduler counts of cpu and memory; what is no quantity counts as nothing."""
    found = effective_requests(pod, _readable)
    return min(found.get(CPU, 0), MOST), min(found.get(MEMORY, 0), MOST)


def _readable(quantities: Mapping[str, Quantity]) -> Resources:
    return {name: amount(quantities, name, scale) for name, scale in ((CPU, 1000), (MEMORY, 1)) if name in quantities}


def amount(quantities: Mapping[str, Quantity], name: str, scale: int) -> int:
    """Return one amount of a list times `scale`; 0 for one that is absent, negative or no quantity."""
    text = quantities.get(name)
    if text is None:
        return 0
    try:
        return min(max(0, parse_quantity(text, scale)), MOST)
    except QuantityError:
        return 0


def amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    """Return millicores and bytes of a list."""
    return amount(quantities, CPU, 1000), amount(quantities, MEMORY, 1)


def _kubernetes_class(pod: Pod) -> str:
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    lists = [(each.resources.requests, each.resources.limits) for each in containers]
    if containers and all(_guaranteed(requests, limits) for requests, limits in lists):
        return "Guaranteed"
    return "Burstable" if any(any(amounts(each)) for pair in lists for each in pair) else "BestEffort"


def _guaranteed(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> bool:
    bound = amounts(limits)
    return all(bound) and amounts({**limits, **requests}) == bound


def _numa_nodes(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        status = msgspec.json.decode(text, type=ResourceStatus)
    except (msgspec.DecodeError, RecursionError):
        return ()
    found = {each.node for each in status.numa_node_resources if 0 <= each.node < MAX_NUMA_NODES}
    return tuple(sorted(found))


def total(listed: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts."""
    cpu = memory = 0
    for each in listed:
        cpu, memory = cpu + each[0], memory + each[1]
    return cpu, memory
