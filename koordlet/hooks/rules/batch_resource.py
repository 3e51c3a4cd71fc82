"""Batch and mid resources: the CPU and memory of pods that have none of the node's own."""

from typing import ClassVar

from api.kube.resources import CPU, MEMORY
from api.protocol import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from api.qos import QoSClass, is_protected
from koordlet.hooks.amounts import (
    container_amounts,
    known_containers,
    limit_bytes_of,
    most_at_once,
    quota_us_of,
    shares_of,
)
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, UNLIMITED, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts
from koordlet.strategies.plugins.cpu_suppress import CpuSuppress

BATCH, MID = (BATCH_CPU, BATCH_MEMORY), (MID_CPU, MID_MEMORY)


class BatchResource(Rule):
    """Shares from the request; quota and memory limit from the limit, or none where a container has no limit.

    A quota is divided by the speed of the node's cores. Where best-effort work as a whole is suppressed by a quota,
    single pods have none.

    Applies: pods labelled BE with batch resources; pods with mid resources, but for LSE, LSR and SYSTEM
    Knobs: shares, quota, memory limit; container and pod
    Source: Koordinator BatchResource; mid resources by the same rule
    """

    features: ClassVar = {"BatchResource": True}
    order = 10

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the amounts of one container."""
        names = _names_of(pod, container)
        if not names or container.role is ContainerRole.SANDBOX:
            return NOTHING
        amounts = container_amounts(pod, container, names)
        cpu, memory = names
        return _resources(amounts.requests.get(cpu, 0), amounts.limits.get(cpu), amounts.limits.get(memory), node)

    def pod(self, pod: PodFacts, node: NodeFacts) -> ContainerResources:
        """Return the most that the containers may have together."""
        containers = known_containers(pod)
        names = _names_of(pod, *containers)
        if not names:
            return NOTHING
        cpu, memory = names
        amounts = {container.name: container_amounts(pod, container, names) for container in containers}
        return _resources(
            most_at_once(containers, lambda container: amounts[container.name].requests.get(cpu, 0)) or 0,
            most_at_once(containers, lambda container: amounts[container.name].limits.get(cpu)),
            most_at_once(containers, lambda container: amounts[container.name].limits.get(memory)),
            node,
        )


def _names_of(pod: PodFacts, *containers: PodContainer) -> tuple[str, str] | None:
    """Return the resources that the pod's CPU and memory are counted in; None where they are the node's own."""
    native = (name for container in pod.containers for name in (*container.requests, *container.limits))
    if is_protected(pod.qos, pod.priority) or any(name in (CPU, MEMORY) for name in native):
        return None  # amounts of the node's own are the kubelet's to carry out
    for names in (BATCH, MID) if pod.qos is QoSClass.BE else (MID,):
        for container in (*pod.containers, *containers):
            amounts = container_amounts(pod, container, names)
            if any(name in amounts.requests or name in amounts.limits for name in names):
                return names
    return None


def _resources(request: int, cpu_limit: int | None, memory_limit: int | None, node: NodeFacts) -> ContainerResources:
    unlimited = cpu_limit is None or _under_one_quota(node)
    return ContainerResources(
        cpu_shares=shares_of(request),
        cpu_quota_us=UNLIMITED if unlimited or cpu_limit is None else quota_us_of(cpu_limit, node.ratio_percent),
        memory_limit_bytes=UNLIMITED if memory_limit is None else limit_bytes_of(memory_limit),
    )


def _under_one_quota(node: NodeFacts) -> bool:
    suppress = node.strategies.get("cpu_suppress")
    if not isinstance(suppress, CpuSuppress):
        return False
    return suppress.settings.enable and suppress.settings.policy == "cfsQuota"
