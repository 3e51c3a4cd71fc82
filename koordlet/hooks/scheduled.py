"""What the scheduler gave a pod: CPUs, NUMA nodes and devices, from its annotations.

Anyone who may create a pod may write them. So they count up to what the pod's spec requests, once that is known, and
only for what this node has.
"""

from functools import lru_cache
from typing import TypeVar

import msgspec

from api.cpuset import parse_cpuset
from api.kube.device import DeviceAllocation, DeviceAllocations
from api.kube.numa import ResourceStatus
from api.kube.resources import CPU
from api.protocol import ANNOTATION_DEVICE_ALLOCATED, ANNOTATION_RESOURCE_STATUS
from api.qos import QoSClass
from koordlet.hooks.amounts import bounded, bounded_quantity
from koordlet.hooks.rule import RuleProblem
from koordlet.identity.pods import PodContainer, PodFacts

T = TypeVar("T")

_NEVER_BOUND = (QoSClass.BE, QoSClass.SYSTEM)
_MOST_DEVICES = 64


def own_cpus(pod: PodFacts, cpus: frozenset[int]) -> frozenset[int]:
    """Return the node's CPUs that are the pod's alone, empty without any. Raises RuleProblem."""
    text = pod.annotations.get(ANNOTATION_RESOURCE_STATUS)
    if text is None:
        return frozenset()
    listed = _decoded(text, ANNOTATION_RESOURCE_STATUS, ResourceStatus).cpuset
    try:
        claimed = parse_cpuset(listed)
    except ValueError as error:
        raise RuleProblem(f"{ANNOTATION_RESOURCE_STATUS}: {error}") from error
    if not claimed:
        return frozenset()
    own, requested = claimed & cpus, pod.requests.get(CPU)
    if pod.qos in _NEVER_BOUND:
        raise RuleProblem(f"{ANNOTATION_RESOURCE_STATUS}: pods of class {pod.qos} have no CPUs of their own")
    if not own:
        raise RuleProblem(f"{ANNOTATION_RESOURCE_STATUS}: none of the CPUs {listed[:64]!r} is on this node")
    if pod.spec_known and len(claimed) * 1000 > (requested or 0):
        raise RuleProblem(f"{ANNOTATION_RESOURCE_STATUS}: {len(claimed)} CPUs, but {requested or 0}m are requested")
    return own


def numa_nodes(pod: PodFacts) -> tuple[int, ...]:
    """Return the NUMA nodes that the pod was given CPU of. Raises RuleProblem."""
    text = pod.annotations.get(ANNOTATION_RESOURCE_STATUS)
    if text is None:
        return ()
    status = _decoded(text, ANNOTATION_RESOURCE_STATUS, ResourceStatus)
    try:
        return tuple(
            given.node for given in status.numa_node_resources if bounded_quantity(given.resources.get(CPU, 0))
        )
    except ValueError as error:
        raise RuleProblem(f"{ANNOTATION_RESOURCE_STATUS}: {error}") from error


def placement(pod: PodFacts, cpus: frozenset[int]) -> tuple[frozenset[int], tuple[int, ...]]:
    """Return the pod's own CPUs and its NUMA nodes; none where the annotation cannot be followed, which the rule of
    bound CPUs reports."""
    try:
        return own_cpus(pod, cpus), numa_nodes(pod)
    except RuleProblem:
        return frozenset(), ()


def devices(pod: PodFacts, kind: str) -> tuple[DeviceAllocation, ...]:
    """Return the devices of one type that the pod was given. Raises RuleProblem."""
    text = pod.annotations.get(ANNOTATION_DEVICE_ALLOCATED)
    if text is None:
        return ()
    given = _decoded(text, ANNOTATION_DEVICE_ALLOCATED, DeviceAllocations).get(kind, [])
    if len(given) > _MOST_DEVICES or any(not 0 <= device.minor <= 65_535 for device in given):
        raise RuleProblem(f"{ANNOTATION_DEVICE_ALLOCATED}: more than {_MOST_DEVICES} devices, or a minor out of range")
    return tuple(given)


def requests_any(pod: PodFacts, container: PodContainer, names: frozenset[str]) -> bool:
    """Return whether the container requests one of the resources; true where no spec of the pod is known."""
    return not pod.spec_known or not names.isdisjoint((*container.requests, *container.limits))


@lru_cache(maxsize=2048)
def _decoded(text: str, key: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(bounded(text, key), type=kind)
    except (ValueError, RecursionError) as error:
        raise RuleProblem(f"{key}: {error}") from error
