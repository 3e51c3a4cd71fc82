"""CPU and NUMA request of a pod, from its QoS class, requests and annotations."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from api.kube.numa import NodeResourceTopology, NumaTopologySpec, ResourceSpec
from api.kube.objects import Node
from api.kube.resources import CPU, MEMORY
from api.protocol import (
    ANNOTATION_NUMA_TOPOLOGY_SPEC,
    ANNOTATION_RESOURCE_SPEC,
    LABEL_NODE_NUMA_TOPOLOGY_POLICY,
    LABEL_QOS_CLASS,
)
from api.qos import PriorityBand, QoSClass
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.numa.hints import NumaPolicy
from scheduler.numa.machine import MILLI
from scheduler.numa.placement import NumaExclusive
from scheduler.numa.reports import read_annotation
from scheduler.numa.topology import CpuBindPolicy, CpuExclusivePolicy
from scheduler.priority import band_of


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """CPU and NUMA request of a class of pods."""

    cpu_millicores: int
    memory_bytes: int
    bind: CpuBindPolicy = CpuBindPolicy.NONE
    """The layout of the pod's own CPUs; NONE when it takes none unless the node demands it."""
    required: CpuBindPolicy = CpuBindPolicy.NONE
    exclusive: CpuExclusivePolicy = CpuExclusivePolicy.NONE
    policy: NumaPolicy = NumaPolicy.NONE
    numa_exclusive: NumaExclusive = NumaExclusive.NONE

    @property
    def whole(self) -> bool:
        """Return whether the request is a whole number of CPUs."""
        return self.cpu_millicores % MILLI == 0


def read_request(info: PodInfo, default: CpuBindPolicy) -> CpuRequest | None:
    """Read the request of a pod; None when it asks for neither cpu nor memory.

    Pods of class LSE or LSR in the prod band get CPUs of their own, laid out as they declare or by `default`
    (NONE leaves those that declare nothing in the shared pool).
    """
    cpu, memory = info.requests.get(CPU, 0), info.requests.get(MEMORY, 0)
    if not cpu and not memory:
        return None
    annotations = info.pod.metadata.annotations
    numa = read_annotation(annotations, ANNOTATION_NUMA_TOPOLOGY_SPEC, NumaTopologySpec) or NumaTopologySpec()
    layout = read_annotation(annotations, ANNOTATION_RESOURCE_SPEC, ResourceSpec) or ResourceSpec()
    request = CpuRequest(
        cpu,
        memory,
        exclusive=exclusive_policy(layout.preferred_cpu_exclusive_policy),
        policy=numa_policy(numa.numa_topology_policy),
        numa_exclusive=_numa_exclusive(numa.single_numa_node_exclusive),
    )
    if not cpu or info.labels.get(LABEL_QOS_CLASS) not in (QoSClass.LSE, QoSClass.LSR):
        return request
    required, preferred = _layouts(layout, default)
    if (required or preferred).binds and band_of(info.pod) is PriorityBand.PROD:
        return replace(request, bind=required or preferred, required=required)
    return request


def _layouts(layout: ResourceSpec, default: CpuBindPolicy) -> tuple[CpuBindPolicy, CpuBindPolicy]:
    """The required and the preferred layout; `Default`, and no preference, resolve to `default`."""
    required, preferred = (
        _bind_policy(text) for text in (layout.required_cpu_bind_policy, layout.preferred_cpu_bind_policy)
    )
    if required is CpuBindPolicy.DEFAULT:
        required = default
    if preferred in (CpuBindPolicy.DEFAULT, CpuBindPolicy.NONE):
        preferred = default
    return required, preferred


def _known(text: str, values: Iterable[str]) -> bool:
    return text in set(values)


def _bind_policy(text: str) -> CpuBindPolicy:
    return CpuBindPolicy(text) if _known(text, CpuBindPolicy) else CpuBindPolicy.NONE


def exclusive_policy(text: str) -> CpuExclusivePolicy:
    """The exclusive policy a text names; NONE for anything unknown."""
    return CpuExclusivePolicy(text) if _known(text, CpuExclusivePolicy) else CpuExclusivePolicy.NONE


def numa_policy(text: str) -> NumaPolicy:
    """The NUMA policy a text names; NONE for anything unknown."""
    return NumaPolicy(text) if _known(text, NumaPolicy) else NumaPolicy.NONE


def node_numa_policy(node: Node, report: NodeResourceTopology | None) -> NumaPolicy:
    """The NUMA policy of a node: its label's, else that of its kubelet as the node's agent reports it."""
    label = node.metadata.labels.get(LABEL_NODE_NUMA_TOPOLOGY_POLICY, "")
    if label or report is None:
        return numa_policy(label)
    for text in report.topology_policies:
        kubelet = text.removesuffix("PodLevel").removesuffix("ContainerLevel")
        if kubelet and _known(kubelet, NumaPolicy):
            return NumaPolicy(kubelet)
    return NumaPolicy.NONE


def _numa_exclusive(text: str) -> NumaExclusive:
    return NumaExclusive(text) if _known(text, NumaExclusive) else NumaExclusive.NONE
