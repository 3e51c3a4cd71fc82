"""Leaves best-effort work the CPU that others do not use: fewer CPUs, or one quota over all of it.

Allowance, cuts at once and growth by at most a tenth of the node are Koordinator's.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from api.cpuset import format_cpuset, parse_cpuset
from api.intents import Intent, Knob, Strength
from api.qos import QoSClass
from api.resources import CPU
from koordlet.strategies.cpupick import pick_cpus
from koordlet.strategies.cpuquota import PERIOD_US, format_quota, parse_quota, quota_of
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, Kind, KubeQoS, NodeView

LEAST_CPUS = 2
LEAST_QUOTA_US = 2_000
GROWTH_PERCENT = 10
"""Of the node, at most, in one tick."""
DEAD_BAND_PERCENT = 1
"""Of the node: smaller changes are not worth a write."""


class CpuSuppressSettings(StrategySettings, frozen=True):
    """Part of resourceUsedThresholdWithBE."""

    enable: bool = False
    threshold_percent: Annotated[int, Meta(ge=0, le=100)] = field(default=65, name="cpuSuppressThresholdPercent")
    """Of capacity: what all of the node may use."""
    min_percent: Annotated[int, Meta(ge=0, le=100)] | None = field(default=None, name="cpuSuppressMinPercent")
    """Of capacity: what best-effort work keeps in any case."""
    policy: Literal["cpuset", "cfsQuota"] = field(default="cpuset", name="cpuSuppressPolicy")


class CpuSuppress(Strategy[CpuSuppressSettings]):
    """Writes the best-effort directory and what is below it; pods with CPUs of their own are passed over."""

    section: ClassVar[str] = "resourceUsedThresholdWithBE"
    features: ClassVar[dict[str, bool]] = {"BECPUSuppress": True}
    settings_type = CpuSuppressSettings

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """The same on every tick in which nothing changes; nothing where the node's usage is not known."""
        if not (self.settings.enable and self.gates["BECPUSuppress"]):
            return []
        allowed = allowance_millicores(view, self.settings)
        directory = view.qos_dir(KubeQoS.BEST_EFFORT)
        if allowed is None or directory is None:
            self.problems[self.section] = "needs the node's CPU usage and a best-effort directory"
            return []
        reason = f"best-effort work may use {allowed} of {view.node.cpu_millicores} millicores"
        if self.settings.policy == "cfsQuota":
            return self._quota(view, directory, allowed, reason)
        return self._cpuset(view, directory, allowed, reason)

    def _quota(self, view: NodeView, directory: Group, allowed: int, reason: str) -> list[Intent]:
        """One quota for all; single ones would hold back below it what the whole could have."""
        current = parse_quota(directory.knobs.get(Knob.CPU_MAX, "max"))
        floor = quota_of(view.node.cpu_millicores) * (self.settings.min_percent or 0) // 100
        quota = next_quota_us(allowed, current, view.node.cpu_millicores, floor)
        wants: list[Intent] = [self.want(directory.path, Knob.CPU_MAX, format_quota(quota), reason, Strength.HARD)]
        for group in _below(view, directory):
            wants.append(
                self.want(group.path, Knob.CPU_MAX, format_quota(None), "one quota holds for all of its class")
            )
        return wants

    def _cpuset(self, view: NodeView, directory: Group, allowed: int, reason: str) -> list[Intent]:
        groups = [directory, *_below(view, directory, bound=False)]
        if view.node.kubelet_static:
            groups = [group for group in groups if group.kind is Kind.CONTAINER]
        count = next_count(allowed, _current_count(groups), len(view.node.cpus))
        cpus = best_effort_cpus(view, count)
        if not cpus:
            self.problems[directory.path] = "no CPU is left that best-effort work may use"
            return []
        text = format_cpuset(cpus)
        return [self.want(group.path, Knob.CPUSET_CPUS, text, reason, Strength.HARD) for group in groups]


def allowance_millicores(view: NodeView, settings: CpuSuppressSettings) -> int | None:
    """Threshold less what all others use, not below the configured minimum; may be negative without one.

    What the system uses is the rest of the node's usage, at least what is reserved. Pods whose usage is not
    measured thereby count as system. None where the node's usage is not known.
    """
    if view.cpu_millicores is None:
        return None
    pods = {group.path: group.cpu_millicores or 0.0 for group in view.pods}
    apps = {group.path: group.cpu_millicores or 0.0 for group in view.host_apps}
    system = max(view.cpu_millicores - sum(pods.values()) - sum(apps.values()), 0.0)
    reserved = max(view.node.kubelet_reserved_millicores, view.node.reserved.get(CPU, 0))
    others = sum(pods[group.path] for group in view.pods if not group.best_effort)
    other_apps = sum(apps[group.path] for group in view.host_apps if not _lent(view, group))
    capacity = view.node.cpu_millicores
    allowed = capacity * settings.threshold_percent // 100 - int(others) - int(other_apps) - max(int(system), reserved)
    return allowed if settings.min_percent is None else max(allowed, capacity * settings.min_percent // 100)


def _lent(view: NodeView, app: Group) -> bool:
    """Whether an application lives on what best-effort work is given."""
    directory = view.qos_dir(KubeQoS.BEST_EFFORT)
    return app.qos is QoSClass.BE and directory is not None and app.path.startswith(f"{directory.path}/")


def next_quota_us(allowed_millicores: int, current_us: int | None, capacity_millicores: int, floor_us: int = 0) -> int:
    """Quota per 100 ms: cut at once, grown by at most a tenth of the node, unchanged within one percent of it."""
    wanted = max(allowed_millicores * PERIOD_US // 1000, LEAST_QUOTA_US)
    if current_us is None:
        return wanted
    whole = quota_of(capacity_millicores)
    if wanted != LEAST_QUOTA_US and abs(wanted - current_us) < whole * DEAD_BAND_PERCENT // 100:
        return min(max(current_us, floor_us, LEAST_QUOTA_US), whole)
    return max(min(wanted, current_us + whole * GROWTH_PERCENT // 100), LEAST_QUOTA_US)


def next_count(allowed_millicores: int, current: int | None, total: int) -> int:
    """Number of CPUs: cut at once, grown by at most a tenth of the node, and only past one percent of it."""
    wanted = min(max(-(-allowed_millicores // 1000), LEAST_CPUS), total)
    if current is None or wanted <= current:
        return wanted
    if allowed_millicores - current * 1000 < total * 1000 * DEAD_BAND_PERCENT // 100 and current >= LEAST_CPUS:
        return current
    return min(wanted, current + -(-total * GROWTH_PERCENT // 100))


def best_effort_cpus(view: NodeView, count: int) -> list[int]:
    """CPUs for best-effort work, at most `count`: never those of LSE pods, the reserved or the system's own; of
    LSR pods' CPUs as many in proportion as there are."""
    lse = _bound(view, QoSClass.LSE)
    lsr = _bound(view, QoSClass.LSR)
    barred = view.node.reserved_cpus | view.node.system_cpus | lse
    free = [cpu for cpu in view.node.cpus if cpu.id not in barred]
    shared = [cpu for cpu in free if cpu.id not in lsr]
    reserved = [cpu for cpu in free if cpu.id in lsr]
    count = min(count, len(free))
    from_reserved = count * len(reserved) // len(free) if free else 0
    return pick_cpus(reserved, from_reserved) + pick_cpus(shared, count - from_reserved)


def _bound(view: NodeView, qos: QoSClass) -> frozenset[int]:
    return frozenset(cpu for pod in view.pods if pod.effective_qos is qos for cpu in pod.bound_cpus)


def _below(view: NodeView, directory: Group, bound: bool = True) -> list[Group]:
    """Best-effort pods and their containers, but for protected ones and, unless `bound`, those with own CPUs."""
    pods = [pod for pod in view.pods if pod.path.startswith(f"{directory.path}/") and not pod.protected]
    return [group for pod in pods if bound or not pod.bound_cpus for group in (pod, *view.containers(pod))]


def _current_count(groups: list[Group]) -> int | None:
    """CPUs that the first group has now, which stands for all; None where it is not limited."""
    listed = groups[0].knobs.get(Knob.CPUSET_CPUS, "") if groups else ""
    return len(parse_cpuset(listed)) or None
