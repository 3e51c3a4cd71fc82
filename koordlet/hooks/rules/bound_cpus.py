"""CPUs of a pod's own, as the scheduler gave them."""

from typing import ClassVar

from api.kube.resources import CPU
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, UNLIMITED, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.hooks.scheduled import own_cpus
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts


class BoundCpus(Rule):
    """The CPUs of the annotation resource-status that this node has, and no quota where they bound the pod anyway.

    Applies: LSE, LSR, LS and unlabelled pods with the annotation, as far as they request as many CPUs
    Knobs: CPU set of containers; quota of container and pod
    Source: Koordinator CPUSetAllocator
    """

    features: ClassVar = {"CPUSetAllocator": True}
    order = 20

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the pod's CPUs."""
        own = own_cpus(pod, node.cpus)
        if not own or container.role is ContainerRole.SANDBOX:
            return NOTHING
        return ContainerResources(cpuset_cpus=own, cpu_quota_us=_quota(own, container.limits.get(CPU)))

    def pod(self, pod: PodFacts, node: NodeFacts) -> ContainerResources:
        """Return that the pod has no quota: the kubelet's would throttle CPUs that are the pod's alone."""
        own = own_cpus(pod, node.cpus)
        return ContainerResources(cpu_quota_us=_quota(own, pod.limits.get(CPU))) if own else NOTHING


def _quota(own: frozenset[int], limit: int | None) -> int | None:
    """A quota below the CPUs stays: it is the limit that the pod's owner wants."""
    return UNLIMITED if limit is None or len(own) * 1000 <= limit else None
