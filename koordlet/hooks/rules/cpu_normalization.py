"""Quotas on nodes whose cores are faster than those that limits are meant for."""

from typing import ClassVar

from api.kube.resources import CPU
from api.qos import QoSClass, is_protected
from koordlet.hooks.amounts import most_at_once, quota_us_of
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.hooks.scheduled import placement
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts


class CpuNormalization(Rule):
    """The quota of the CPU limit, divided by the node's ratio and rounded up; nothing at a ratio of 1.

    Applies: LS and unlabelled pods with a CPU limit and without CPUs of their own
    Knobs: quota; container and pod
    Source: Koordinator CPUNormalization
    """

    features: ClassVar = {"CPUNormalization": False}
    order = 40

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the quota of one container."""
        limit = container.limits.get(CPU, 0)
        if not _applies(pod, node) or limit <= 0 or container.role is ContainerRole.SANDBOX:
            return NOTHING
        return ContainerResources(cpu_quota_us=quota_us_of(limit, node.ratio_percent))

    def pod(self, pod: PodFacts, node: NodeFacts) -> ContainerResources:
        """Return the quota of the pod, which has one where every container has a limit."""
        limit = most_at_once(pod.containers, lambda container: container.limits.get(CPU))
        if not _applies(pod, node) or not limit:
            return NOTHING
        return ContainerResources(cpu_quota_us=quota_us_of(limit, node.ratio_percent))


def _applies(pod: PodFacts, node: NodeFacts) -> bool:
    if node.ratio_percent <= 100 or pod.qos not in (QoSClass.LS, QoSClass.NONE) or is_protected(pod.qos, pod.priority):
        return False
    return not placement(pod, node.cpus)[0]
