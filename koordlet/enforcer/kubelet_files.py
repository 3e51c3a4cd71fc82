"""Files that the kubelet writes itself, which the agent leaves alone. Pure.

The kubelet writes the shares of its directories (`kubepods` and those of the QoS classes) and would not start on an
idle one. With its managers it also writes CPU lists, memory nodes and memory protection.
"""

from api.frame import CgroupKind
from api.intents import Knob
from koordlet.host.knobs.direction import Direction
from koordlet.identity.cgroup_names import name_cgroup
from koordlet.identity.kubelet_policy import KubeletPolicy

_NEVER = frozenset({Knob.CPU_IDLE, Knob.CPU_WEIGHT, Knob.FREEZE})
"""Of every directory of the kubelet."""
_BEST_EFFORT_ALONE = frozenset(
    {Knob.CPU_MAX, Knob.CPU_BURST, Knob.CPUSET_CPUS, Knob.CPUSET_MEMS, Knob.MEMORY_HIGH, Knob.MEMORY_MAX, Knob.IO_MAX}
)
"""Limits that no directory of the kubelet gets but the best-effort one: the others hold production."""
_PROTECTION = frozenset({Knob.MEMORY_MIN, Knob.MEMORY_LOW})
NOT_KNOWN = ", as far as is known: neither the kubelet nor its file has told its configuration"
"""End of a reason that the kubelet's configuration may take away; what is in effect stays meanwhile."""
_LISTS = frozenset({Knob.CPUSET_CPUS, Knob.CPUSET_MEMS})


def refusal(
    knob: Knob, target: str, kind: CgroupKind, direction: Direction, policy: KubeletPolicy, pod_uid: str
) -> str:
    """Reason why a file belongs to the kubelet; empty if it may be written.

    `kind` is that of the target, `pod_uid` the pod that it is or lies in, empty outside pods.
    """
    reason = _reason(knob, target, kind, direction, policy, pod_uid)
    if not reason or policy.is_known:
        return reason
    certain = _reason(knob, target, kind, direction, _without_managers(policy), pod_uid)
    return certain or reason + NOT_KNOWN


def _without_managers(policy: KubeletPolicy) -> KubeletPolicy:
    return KubeletPolicy(exclusive_pods=policy.exclusive_pods)


def _reason(
    knob: Knob, target: str, kind: CgroupKind, direction: Direction, policy: KubeletPolicy, pod_uid: str
) -> str:
    if kind is CgroupKind.KUBEPODS:
        return _of_directory(knob, target, direction, policy)
    if pod_uid and policy.memory_qos and knob in _PROTECTION:
        return "the kubelet's MemoryQoS writes the memory protection of pods"
    if pod_uid in policy.exclusive_pods and pod_uid and knob in _LISTS:
        return "the kubelet's CPU manager gave the pod CPUs of its own"
    return ""


def _of_directory(knob: Knob, target: str, direction: Direction, policy: KubeletPolicy) -> str:
    if knob in _NEVER:
        return f"{target} belongs to the kubelet, which would fail to start on an idle cgroup and writes its shares"
    if knob in _PROTECTION and policy.memory_qos:
        return f"the kubelet's MemoryQoS writes the memory protection of {target}"
    if knob is Knob.CPUSET_CPUS and policy.cpu_manager_static:
        return f"the kubelet's static CPU manager writes the CPU lists below {target}"
    if knob is Knob.CPUSET_MEMS and policy.memory_manager_static:
        return f"the kubelet's static memory manager writes the memory nodes below {target}"
    if knob is Knob.MEMORY_MAX and policy.qos_reserved:
        return f"the kubelet's qosReserved writes the memory limit of {target}"
    widens = direction in (Direction.WIDER, Direction.SAME)
    if knob in _BEST_EFFORT_ALONE and not widens and name_cgroup(target).kube_qos != "BestEffort":
        return f"{target} belongs to the kubelet and holds more than best-effort pods"
    return ""
