"""CPU of best-effort work as a whole: its quota, its CPUs, and the groups that it consists of.

Steps, floors and the choice of CPUs are Koordinator's; the number of CPUs gets the dead band that quotas have.
"""

from api.cgroup_path import is_below
from api.qos import QoSClass
from koordlet.strategies.cpupick import pick_cpus
from koordlet.strategies.cpuquota import PERIOD_US, quota_of
from koordlet.strategies.view import CpuThread, Group, KubeQoS, NodeView

MIN_CPUS = 2
MIN_QUOTA_US = 2_000
GROWTH_PERCENT = 10
"""Largest growth in one tick, in percent of the node."""
DEAD_BAND_PERCENT = 1
"""Smallest change that is worth a write, in percent of the node."""


def next_quota_us(allowed_millicores: int, current_us: int | None, capacity_millicores: int, floor_us: int = 0) -> int:
    """Return the quota per 100 ms: lowered at once, raised by at most a tenth of the node, kept within one percent of
    it."""
    desired = max(allowed_millicores * PERIOD_US // 1000, MIN_QUOTA_US)
    if current_us is None:
        return desired
    whole = quota_of(capacity_millicores)
    if desired != MIN_QUOTA_US and abs(desired - current_us) < whole * DEAD_BAND_PERCENT // 100:
        return min(max(current_us, floor_us, MIN_QUOTA_US), whole)
    return max(min(desired, current_us + whole * GROWTH_PERCENT // 100), MIN_QUOTA_US)


def next_count(allowed_millicores: int, current: int | None, total: int) -> int:
    """Return the number of CPUs: lowered at once, raised by at most a tenth of the node, and only past one percent of
    it."""
    desired = min(max(-(-allowed_millicores // 1000), MIN_CPUS), total)
    if current is None or desired <= current:
        return desired
    if allowed_millicores - current * 1000 < total * 1000 * DEAD_BAND_PERCENT // 100 and current >= MIN_CPUS:
        return current
    return min(desired, current + -(-total * GROWTH_PERCENT // 100))


def best_effort_roots(view: NodeView) -> list[Group]:
    """Return the groups that hold all best-effort work: the kubelet's directory, or else the applications classed
    BE."""
    directory = view.qos_dir(KubeQoS.BEST_EFFORT)
    if directory is not None:
        return [directory]
    return [app for app in view.host_apps if app.qos is QoSClass.BE]


def lendable_cpus(view: NodeView) -> list[CpuThread]:
    """Return the CPUs that best-effort work may run on: not those of LSE pods, the reserved or the system's own."""
    barred = view.node.reserved_cpus | view.node.system_cpus | bound_cpus(view, QoSClass.LSE)
    return [cpu for cpu in view.node.cpus if cpu.id not in barred]


def best_effort_cpus(view: NodeView, count: int) -> list[int]:
    """Return lendable CPUs, at most `count`; of LSR pods' CPUs in proportion to their number."""
    lsr = bound_cpus(view, QoSClass.LSR)
    free = lendable_cpus(view)
    shared = [cpu for cpu in free if cpu.id not in lsr]
    reserved = [cpu for cpu in free if cpu.id in lsr]
    count = min(count, len(free))
    from_reserved = count * len(reserved) // len(free) if free else 0
    return pick_cpus(reserved, from_reserved) + pick_cpus(shared, count - from_reserved)


def bound_cpus(view: NodeView, *classes: QoSClass) -> frozenset[int]:
    """Return the CPUs bound to pods and applications of these classes, or of any class."""
    owners = [group for group in (*view.pods, *view.host_apps) if not classes or group.effective_qos in classes]
    return frozenset(cpu for group in owners for cpu in group.own_cpus)


def below_directory(view: NodeView, directory: Group, bound: bool = True) -> list[Group]:
    """Return best-effort pods and their containers, without protected ones and, unless `bound`, those with own CPUs."""
    pods = [pod for pod in view.pods if is_below(pod.path, directory.path) and not pod.protected]
    return [group for pod in pods if bound or not pod.own_cpus for group in (pod, *view.containers(pod))]
