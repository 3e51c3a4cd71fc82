"""Watermark rules of the node and their actions, in Crane's words; measured values, and excess over a watermark."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from api.protocol import BATCH_CPU
from koordlet.strategies.strategy import StrategySettings
from koordlet.strategies.throttling import CpuThrottle
from koordlet.strategies.view import Group, NodeView

EXCESS_PERCENT = 110
"""Percent of the excess that an action is to cover."""

Metric = Literal[
    "cpu_total_usage",
    "cpu_total_utilization",
    "memory_total_usage",
    "memory_total_utilization",
    "ext_cpu_total_distribute",
    "load_per_cpu",
    "cpu_pressure",
    "memory_pressure",
    "io_pressure",
    "disk_utilization",
]
CPU_AMOUNTS = ("cpu_total_usage", "cpu_total_utilization")
MEMORY_AMOUNTS = ("memory_total_usage", "memory_total_utilization")
ELASTIC = "ext_cpu_total_distribute"
Times = Annotated[int, Meta(ge=1, le=1000)]


class MetricRule(StrategySettings, frozen=True):
    """A watermark: millicores or bytes for usages, percent for all others; of the CPUs, for the load."""

    name: Metric
    value: Annotated[int, Meta(ge=1)]

    def __post_init__(self) -> None:
        if self.name.endswith(("utilization", "pressure")) and self.value > 100:
            raise ValueError(f"{self.name} {self.value} is above 100 percent; write a percent of capacity")


class WatermarkRule(StrategySettings, frozen=True):
    """Rule: a watermark, the action above it, and when it is taken."""

    name: str
    metric_rule: MetricRule
    action_name: str
    avoidance_threshold: Times = 2
    """Hits in a row before the action is taken."""
    restored_threshold: Times = 2
    """Misses in a row before the action is reverted."""
    strategy: Literal["None", "Preview"] = "None"
    """With Preview the action is reported and not taken."""


class ThrottleAction(StrategySettings, frozen=True):
    """Throttling of pods."""

    cpu_throttle: CpuThrottle | None = None
    force_gc: bool = msgspec.field(default=False, name="forceGC")
    """Whether page cache of the pods is reclaimed."""


class EvictAction(StrategySettings, frozen=True):
    """Eviction of pods."""

    termination_grace_period_seconds: Annotated[int, Meta(ge=0, le=3600)] = 30


class WatermarkAction(StrategySettings, frozen=True):
    """Action above a watermark; parts that are left out are not done."""

    cool_down_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 300
    """Time after the last hit in which no new pods are scheduled here."""
    disable_schedule: bool = True
    throttle: ThrottleAction | None = None
    eviction: EvictAction | None = None


class PodRule(StrategySettings, frozen=True):
    """Which actions may hit the pods that it selects; of several rules that of the highest priority counts.

    It narrows and never widens: classes that the strategy leaves alone stay alone.
    """

    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that a pod must have, all of them."""
    namespaces: tuple[str, ...] = ()
    qos_classes: tuple[Literal["BE", "LS"], ...] = ()
    lowest_priority: int | None = None
    highest_priority: int | None = None
    """Bounds of `spec.priority`, both included; a pod without one is within none."""
    allowed_actions: tuple[str, ...] = ()
    """Names of actions; none protects the pods from all."""
    priority: int = 0

    def selects(self, pod: Group) -> bool:
        """Return whether a pod is one of the rule's; empty conditions hold for all."""
        namespace = pod.name.partition("/")[0]
        low, high = self.lowest_priority, self.highest_priority
        return (
            all(pod.labels.get(key) == value for key, value in self.labels.items())
            and (not self.namespaces or namespace in self.namespaces)
            and (not self.qos_classes or pod.effective_qos in self.qos_classes)
            and (low is None or (pod.priority is not None and pod.priority >= low))
            and (high is None or (pod.priority is not None and pod.priority <= high))
        )


class WatermarksSettings(StrategySettings, frozen=True):
    """extensions.watermarks; without rules nothing is done."""

    interval_seconds: Annotated[int, Meta(ge=1, le=3600)] = 10
    """Interval between evaluations of the rules: each counts one hit or miss, and takes one step."""
    rules: tuple[WatermarkRule, ...] = ()
    actions: dict[str, WatermarkAction] = msgspec.field(default_factory=dict)
    throttle_classes: tuple[Literal["BE", "LS"], ...] = ("BE",)
    evict_classes: tuple[Literal["BE", "LS"], ...] = ("BE",)
    """Classes of pods that an action may hit; never protected ones."""
    effect: Literal["PreferNoSchedule", "NoSchedule"] = "NoSchedule"
    pod_rules: tuple[PodRule, ...] = ()
    """Pods that only some actions may hit, as Crane's PodQOS."""

    def __post_init__(self) -> None:
        for pods in self.pod_rules:
            for action in pods.allowed_actions:
                if action not in self.actions:
                    raise ValueError(f"pod rule {pods.name} names no action of actions: {action}; define it there")
        for rule in self.rules:
            if rule.action_name not in self.actions:
                raise ValueError(f"rule {rule.name} names no action of actions: {rule.action_name}; define it there")
        if len({rule.name for rule in self.rules}) < len(self.rules):
            raise ValueError("two rules have one name; rename one")


def allows(rules: tuple[PodRule, ...], pod: Group, action: str) -> bool:
    """Return whether an action may hit a pod; where no rule selects it, any may."""
    found = [rule for rule in rules if rule.selects(pod)]
    return not found or action in max(found, key=lambda rule: rule.priority).allowed_actions


def measured(view: NodeView, metric: str) -> int | None:
    """Return the value compared with a watermark: millicores, bytes or whole percents; None where it is not known."""
    ratios = {
        "load_per_cpu": None if view.load is None else view.load / len(view.node.cpus),
        "cpu_pressure": view.cpu_pressure_ratio,
        "memory_pressure": view.memory_pressure_ratio,
        "io_pressure": view.io_pressure_ratio,
        "disk_utilization": view.disk_used_ratio,
    }
    if metric in ratios:
        ratio = ratios[metric]
        return None if ratio is None else int(ratio * 100)
    if metric == ELASTIC:
        allocatable = view.node.allocatable.get(BATCH_CPU)
        requested = sum(pod.requests.get(BATCH_CPU, 0) for pod in view.pods)
        return requested * 100 // allocatable if allocatable else None
    memory = metric in MEMORY_AMOUNTS
    used = view.memory_bytes if memory else view.cpu_millicores
    if used is None:
        return None
    whole = view.node.memory_bytes if memory else view.node.cpu_millicores
    return int(used) if metric.endswith("usage") else int(used * 100 // whole)


def excess(view: NodeView, rule: MetricRule) -> int:
    """Return millicores or bytes above the watermark and a tenth more; at least 1 once it is reached.

    It is 1, which one pod covers, where the share of a pod in what the watermark counts is not known.
    """
    above = max((measured(view, rule.name) or 0) - rule.value, 0)
    if rule.name not in (*CPU_AMOUNTS, *MEMORY_AMOUNTS, ELASTIC):
        return 1
    if not rule.name.endswith("usage"):
        memory = rule.name in MEMORY_AMOUNTS
        whole = view.node.memory_bytes if memory else view.node.cpu_millicores
        above = above * (view.node.allocatable.get(BATCH_CPU, 0) if rule.name == ELASTIC else whole) // 100
    return max(above * EXCESS_PERCENT // 100, 1)
