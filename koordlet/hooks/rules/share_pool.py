"""CPU sets of pods without CPUs of their own: the share pool, the reclaimed pool, the system's CPUs."""

from typing import ClassVar

from api.qos import QoSClass, is_protected
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.hooks.scheduled import placement
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts


class SharePool(Rule):
    """CPUs that no pod has for itself; those of its NUMA nodes where the scheduler gave a pod some there.

    A pool of all CPUs sets nothing. Best-effort pods are placed by their directory (`reclaimed_pool` places them one by
    one). Under the kubelet's static CPU manager every CPU set is the kubelet's.

    Applies: LS and unlabelled pods without CPUs of their own; SYSTEM pods where CPUs are set aside for the system
    Knobs: CPU set of containers
    Source: Koordinator CPUSetAllocator
    """

    features: ClassVar = {"CPUSetAllocator": True}
    order = 30

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the pool, never an empty one."""
        if node.info.kubelet_static or container.role is ContainerRole.SANDBOX:
            return NOTHING
        if pod.qos is QoSClass.SYSTEM and node.info.system_cpus:
            return ContainerResources(cpuset_cpus=node.info.system_cpus)
        is_best_effort = pod.qos is QoSClass.BE or pod.kube_qos == "BestEffort"
        own, given = placement(pod, node.cpus)
        if is_best_effort or is_protected(pod.qos, pod.priority) or own:
            return NOTHING
        pool = node.pools.ls_cpus_of(given) if given else node.pools.ls_cpus
        pool &= node.cpus
        return ContainerResources(cpuset_cpus=pool) if pool and pool != node.cpus else NOTHING
