"""CPU suppression: best-effort work gets what others leave, as fewer CPUs or as one quota over all of it.

Allowance, cuts at once and growth by at most a tenth of the node are Koordinator's.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from api.cgroup_path import is_below, lineage
from api.cpuset import format_cpuset, parse_cpuset
from api.intents import Intent, Knob, Strength
from api.kube.resources import CPU
from api.qos import QoSClass
from koordlet.strategies.best_effort import (
    below_directory,
    best_effort_cpus,
    best_effort_roots,
    next_count,
    next_quota_us,
)
from koordlet.strategies.cpuquota import format_quota, parse_quota, quota_of
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, GroupKind, NodeView


class CpuSuppressSettings(StrategySettings, frozen=True):
    """Part of resourceUsedThresholdWithBE."""

    enable: bool = False
    threshold_percent: Annotated[int, Meta(ge=0, le=100)] = field(default=65, name="cpuSuppressThresholdPercent")
    """Percent of capacity that the whole node may use."""
    min_percent: Annotated[int, Meta(ge=0, le=100)] | None = field(default=None, name="cpuSuppressMinPercent")
    """Percent of capacity that best-effort work always keeps."""
    policy: Literal["cpuset", "cfsQuota"] = field(default="cpuset", name="cpuSuppressPolicy")


class CpuSuppress(Strategy[CpuSuppressSettings]):
    """CPUs or quota of the best-effort directory and what is below it; pods with CPUs of their own are passed over.

    The gate BECPUManager leaves the CPUs of best-effort work to another component.

    Reads: CPU usage of node, pods and applications; CPUs that are bound; limits of the best-effort directory
    Intents: `cpuset.cpus` of all best-effort groups, or `cpu.max` of their directory, unless a pod in it may not be
        limited; without a kubelet of the cgroups classed BE
    Default: off, 65 %
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceUsedThresholdWithBE"
    features: ClassVar[Mapping[str, bool]] = {"BECPUSuppress": True, "BECPUManager": False}
    settings_type = CpuSuppressSettings
    example: ClassVar[Mapping[str, Any]] = {"enable": True}

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which nothing changes; nothing where the node's usage is not known."""
        if not (self.settings.enable and self.gates["BECPUSuppress"]) or self.gates["BECPUManager"]:
            return []
        roots = best_effort_roots(view)
        if not roots:
            self.problems[self.section] = "nothing here is best-effort; label pods or class cgroups by [[qos]]"
            return []
        allowed = allowance_millicores(view, self.settings)
        if allowed is None:
            self.stay_silent(self.section, "the node's CPU usage is not measured")
            return []
        reason = f"best-effort work may use {allowed} of {view.node.cpu_millicores} millicores"
        if self.settings.policy == "cfsQuota":
            return self._quota(view, roots, allowed, reason)
        return self._cpuset(view, roots, allowed, reason)

    def _quota(self, view: NodeView, roots: Sequence[Group], allowed: int, reason: str) -> list[Intent]:
        """Set one quota for all and remove single ones, which would limit a pod while the whole has room."""
        if len(roots) > 1:
            self.problems[self.section] = "one quota cannot limit several cgroups; use cpuSuppressPolicy cpuset"
            return []
        directory = roots[0]
        spared = _spared(view, directory)
        if spared:
            self.problems[self.section] = (
                f"{spared[0]} may not be limited and lives in {directory.path}: others get fewer CPUs instead"
            )
            return self._cpuset(view, roots, allowed, reason)
        current = parse_quota(directory.knobs.get(Knob.CPU_MAX, "max"))
        floor = quota_of(view.node.cpu_millicores) * (self.settings.min_percent or 0) // 100
        quota = next_quota_us(allowed, current, view.node.cpu_millicores, floor)
        intents: list[Intent] = [
            self.set_knob(directory.path, Knob.CPU_MAX, format_quota(quota), reason, Strength.HARD)
        ]
        for group in below_directory(view, directory):
            intents.append(
                self.set_knob(group.path, Knob.CPU_MAX, format_quota(None), "one quota limits all of its class")
            )
        return intents

    def _cpuset(self, view: NodeView, roots: Sequence[Group], allowed: int, reason: str) -> list[Intent]:
        groups = [group for root in roots for group in below_directory(view, root, bound=False)]
        groups = [root for root in roots if not _spared(view, root)] + groups
        if view.node.kubelet_static:
            groups = [group for group in groups if group.kind is GroupKind.CONTAINER]
        count = next_count(allowed, _current_count(groups), len(view.node.cpus))
        cpus = best_effort_cpus(view, count)
        if not cpus:
            self.problems[self.section] = "no CPU is left that best-effort work may use"
            return []
        text = format_cpuset(cpus)
        return [self.set_knob(group.path, Knob.CPUSET_CPUS, text, reason, Strength.HARD) for group in groups]


def _spared(view: NodeView, directory: Group) -> list[str]:
    """Return the pods in a directory that may not be limited: one of class BestEffort may be critical to the node."""
    return [pod.name for pod in view.pods if pod.protected and is_below(pod.path, directory.path)]


def allowance_millicores(view: NodeView, settings: CpuSuppressSettings) -> int | None:
    """Return the threshold less the usage of others, not below the configured minimum; may be negative without one.

    Usage of the system is the rest of the node's usage, at least what is reserved. Pods whose usage is not measured
    thereby count as system. None where the node's usage is not known.
    """
    if view.cpu_millicores is None:
        return None
    pods = {group.path: group.cpu_millicores or 0.0 for group in view.pods}
    apps = {group.path: group.cpu_millicores or 0.0 for group in view.host_apps}
    system = max(view.cpu_millicores - sum(pods.values()) - sum(apps.values()), 0.0)
    reserved = max(view.node.kubelet_reserved_millicores, view.node.reserved.get(CPU, 0))
    others = sum(pods[group.path] for group in view.pods if not group.best_effort)
    roots = {root.path for root in best_effort_roots(view)}
    other_apps = sum(apps[group.path] for group in view.host_apps if not _lent(group, roots))
    capacity = view.node.cpu_millicores
    allowed = capacity * settings.threshold_percent // 100 - int(others) - int(other_apps) - max(int(system), reserved)
    return allowed if settings.min_percent is None else max(allowed, capacity * settings.min_percent // 100)


def _lent(app: Group, roots: AbstractSet[str]) -> bool:
    """Return whether an application lives on what best-effort work at these paths is given."""
    return app.qos is QoSClass.BE and not roots.isdisjoint(lineage(app.path))


def _current_count(groups: list[Group]) -> int | None:
    """Return the number of CPUs of the first group, which stands for all; None where it is not limited."""
    listed = groups[0].knobs.get(Knob.CPUSET_CPUS, "") if groups else ""
    return len(parse_cpuset(listed)) or None
