"""CPU sets of best-effort pods, one by one."""

from typing import ClassVar

from api.qos import QoSClass, is_protected
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.hooks.scheduled import placement
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts


class ReclaimedPool(Rule):
    """All CPUs but those of LSE pods, the reserved and the system's; those of its NUMA nodes where it was given some.

    With the gate open, suppression leaves the CPUs of best-effort work to this rule.

    Applies: best-effort pods
    Knobs: CPU set of containers
    Source: Koordinator BECPUManager
    """

    features: ClassVar = {"BECPUManager": False}
    order = 30

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the pool, never an empty one."""
        best_effort = pod.qos is QoSClass.BE or (pod.qos is QoSClass.NONE and pod.kube_qos == "BestEffort")
        if not best_effort or is_protected(pod.qos, pod.priority) or container.role is ContainerRole.SANDBOX:
            return NOTHING
        if node.info.kubelet_static:
            return NOTHING
        _, given = placement(pod, node.cpus)
        pool = node.pools.be_cpus_of(given) if given else node.pools.be_cpus
        pool &= node.cpus
        return ContainerResources(cpuset_cpus=pool) if pool and pool != node.cpus else NOTHING
