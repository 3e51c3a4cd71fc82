"""The kubelet's own managers, as far as they decide which cgroup files belong to the kubelet. Values; pure."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubeletPolicy:
    """What the kubelet manages by itself; the defaults are those of a kubelet that was not configured."""

    cpu_manager_static: bool = False
    """`cpuManagerPolicy: static`: the kubelet writes the CPU lists of containers."""
    memory_manager_static: bool = False
    """`memoryManagerPolicy: Static`: the kubelet writes the memory nodes of containers."""
    memory_qos: bool = False
    """Feature gate `MemoryQoS`: the kubelet writes memory.min and memory.low."""
    qos_reserved: bool = False
    """`qosReserved`: the kubelet writes the memory limits of its QoS directories."""
    exclusive_pods: frozenset[str] = frozenset()
    """Uids (of cgroup names) of the pods with CPUs of their own, by PodResources."""
    is_known: bool = True
    """False while neither the kubelet nor its file has told: then it is taken to manage whatever it can."""


NO_KUBELET_POLICY = KubeletPolicy()
"""The policy of a kubelet without managers, and of a host without a kubelet."""

UNKNOWN_KUBELET_POLICY = KubeletPolicy(
    cpu_manager_static=True, memory_manager_static=True, memory_qos=True, qos_reserved=True, is_known=False
)
"""The policy of a kubelet whose configuration is not known."""

KubeletPolicyOf = Callable[[], KubeletPolicy]
"""The newest policy; never waits."""


def no_kubelet_policy() -> KubeletPolicy:
    """Return the policy of a host without a kubelet."""
    return NO_KUBELET_POLICY
