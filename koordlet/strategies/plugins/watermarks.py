"""Watermarks of the node with early actions: a taint, throttling step by step, eviction.

Rules, counts, steps and cooldown are Crane's; its least ratio is read as the percent that it is documented to be. Pods
to throttle or evict are chosen as by the other evicting strategies, until the excess and a tenth more is covered.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from api.intents import Intent, Knob, Strength
from api.protocol import BATCH_CPU
from api.qos import QoSClass
from koordlet.strategies.cpuquota import format_quota, quota_of
from koordlet.strategies.eviction_order import USED, EvictionGoal, RecentEvictions, by_eviction_order, evictable
from koordlet.strategies.strategy import Strategy
from koordlet.strategies.throttling import Caps, CpuThrottle, capped
from koordlet.strategies.view import Group, NodeView
from koordlet.strategies.watermark_rules import (
    CPU_AMOUNTS,
    ELASTIC,
    MEMORY_AMOUNTS,
    WatermarkAction,
    WatermarkRule,
    WatermarksSettings,
    allows,
    excess,
    measured,
)

TAINT = "node.koordinator.sh/watermark"
FEATURE = "Watermarks"
"""Name by which a pod's eviction policy may allow it."""


@dataclass(slots=True)
class Fortune:
    """State of a rule between evaluations."""

    hits: int = 0
    misses: int = 0
    active: bool = False
    last_hit: float | None = None
    """Time at which it was last active and hit."""
    reason: str = ""
    caps: Caps = field(default_factory=Caps)

    def see(self, hit: bool, rule: WatermarkRule, now: float) -> None:
        """Count one evaluation; between the two thresholds the rule stays as it is."""
        self.hits, self.misses = (self.hits + 1, 0) if hit else (0, self.misses + 1)
        if self.hits >= rule.avoidance_threshold:
            self.active, self.last_hit = True, now
        elif self.misses >= rule.restored_threshold:
            self.active = False

    def closed(self, action: WatermarkAction, now: float) -> bool:
        """Return whether the node is tainted against new pods."""
        cooling = self.last_hit is not None and now - self.last_hit < action.cool_down_seconds
        return action.disable_schedule and (self.active or cooling)


class Watermarks(Strategy[WatermarksSettings]):
    """A taint of the node, quotas of pods, reclaims and evictions, each above its configured watermark.

    Reads: usage, load, pressure and disks of the node, requests of elastic CPU
    Intents: a taint, `cpu.max`, reclaims, evictions
    Default: no rules
    Source: Crane
    """

    section: ClassVar[str] = "extensions.watermarks"
    settings_type = WatermarksSettings
    example: ClassVar[Mapping[str, Any]] = {
        "intervalSeconds": 1,
        "throttleClasses": ["BE", "LS"],
        "evictClasses": ["BE", "LS"],
        "actions": {"all": {"throttle": {"cpuThrottle": {}, "forceGC": True}, "eviction": {}}},
        "rules": [
            {"name": name, "metricRule": {"name": name, "value": 30}, "actionName": "all", "avoidanceThreshold": 1}
            for name in ("cpu_total_utilization", "memory_total_utilization", "ext_cpu_total_distribute")
        ],
    }
    repeats: ClassVar[bool] = True

    def __init__(self, settings: WatermarksSettings | None = None, features: Mapping[str, bool] | None = None) -> None:
        super().__init__(settings, features)
        self._fortunes: dict[str, Fortune] = {}
        self._evictions = RecentEvictions(0.0)
        self._next_look = 0.0

    @property
    def limited_classes(self) -> frozenset[QoSClass]:
        """Those of `throttleClasses` and `evictClasses`."""
        return frozenset(QoSClass(name) for name in (*self.settings.throttle_classes, *self.settings.evict_classes))

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return what holds between two evaluations of the rules, and the actions of an evaluation."""
        rules = self.settings.rules
        self._fortunes = {rule.name: self._fortunes.get(rule.name, Fortune()) for rule in rules}
        happens: list[Intent] = []
        if now >= self._next_look:
            self._next_look = now + self.settings.interval_seconds
            happens = [intent for rule in rules for intent in self._look(view, rule, now)]
        return [*self._stands(view, now), *happens]

    def _stands(self, view: NodeView, now: float) -> Iterator[Intent]:
        quotas: dict[str, tuple[int, str]] = {}
        closed = ""
        for rule in self.settings.rules:
            fortune = self._fortunes[rule.name]
            if rule.strategy == "Preview":
                if fortune.active:
                    self.problems[rule.name] = f"only a preview of action {rule.action_name}: {fortune.reason}"
                continue
            if not closed and fortune.closed(self.settings.actions[rule.action_name], now):
                closed = rule.name
            for path, cap in fortune.caps.now.items():
                quotas[path] = min(quotas.get(path, (cap, fortune.reason)), (cap, fortune.reason))
        if closed:
            reason = self._fortunes[closed].reason
            yield self.set_knob(TAINT, Knob.NODE_TAINT, f"{closed}:{self.settings.effect}", reason)
        present = {pod.path: pod for pod in view.pods}
        for path, (cap, reason) in quotas.items():
            if path in present:
                for each, millicores in capped(view, present[path], cap):
                    quota = format_quota(quota_of(millicores))
                    yield self.set_knob(each, Knob.CPU_MAX, quota, reason, Strength.HARD)

    def _look(self, view: NodeView, rule: WatermarkRule, now: float) -> Iterator[Intent]:
        value = measured(view, rule.metric_rule.name)
        if value is None:
            self.problems[rule.name] = f"{rule.metric_rule.name} is not measured"
            return
        fortune = self._fortunes[rule.name]
        hit = value >= rule.metric_rule.value
        fortune.see(hit, rule, now)
        fortune.reason = f"{rule.name}: {rule.metric_rule.name} is {value}, the watermark {rule.metric_rule.value}"
        if rule.strategy == "Preview":
            return
        action = self.settings.actions[rule.action_name]
        if action.throttle is not None and action.throttle.cpu_throttle is not None:
            self._step(view, rule, action.throttle.cpu_throttle, hit)
        if fortune.active and hit:
            if action.throttle is not None and action.throttle.force_gc:
                yield from self._reclaims(view, rule, fortune.reason)
            if action.eviction is not None:
                grace = float(action.eviction.termination_grace_period_seconds)
                for pod in self._to_evict(view, rule, now):
                    yield self.evict(pod.path, fortune.reason, grace)

    def _step(self, view: NodeView, rule: WatermarkRule, throttle: CpuThrottle, hit: bool) -> None:
        fortune = self._fortunes[rule.name]
        pods = [pod for pod in view.pods if self._may(pod, self.settings.throttle_classes, rule)]
        fortune.caps.keep({pod.path for pod in pods})
        if not fortune.active:
            fortune.caps.raise_all(throttle)
        elif hit:
            memory = rule.metric_rule.name in MEMORY_AMOUNTS
            target = len(pods) * view.node.cpu_millicores if memory else excess(view, rule.metric_rule)
            ordered = by_eviction_order(pods, lambda pod: pod.cpu_millicores or 0.0)
            fortune.caps.lower_until(ordered, throttle, target)

    def _reclaims(self, view: NodeView, rule: WatermarkRule, reason: str) -> Iterator[Intent]:
        for pod in view.pods:
            if self._may(pod, self.settings.throttle_classes, rule) and pod.cache_bytes:
                yield self.reclaim(pod.path, pod.cache_bytes, reason)

    def _to_evict(self, view: NodeView, rule: WatermarkRule, now: float) -> list[Group]:
        metric = rule.metric_rule.name

        def used(pod: Group) -> int:
            if metric in MEMORY_AMOUNTS:
                return pod.memory_bytes or 0
            return int(pod.cpu_millicores or 0) if metric in CPU_AMOUNTS else 1

        def size(pod: Group) -> float:
            if metric == ELASTIC:
                return pod.requests.get(BATCH_CPU, 0)
            return (pod.memory_bytes if metric.startswith("memory") else pod.cpu_millicores) or 0.0

        pods = [
            pod for pod in view.pods if self._may(pod, self.settings.evict_classes, rule) and evictable(pod, FEATURE)
        ]
        resource = BATCH_CPU if metric == ELASTIC else USED
        goal = EvictionGoal(FEATURE, resource, excess(view, rule.metric_rule), by_eviction_order(pods, size), "")
        return [pod for pod, _ in self._evictions.choose(view, [goal], used, now)]

    def _may(self, pod: Group, classes: tuple[str, ...], rule: WatermarkRule) -> bool:
        chosen = pod.active and not pod.protected and pod.effective_qos in {QoSClass(name) for name in classes}
        return chosen and allows(self.settings.pod_rules, pod, rule.action_name)
