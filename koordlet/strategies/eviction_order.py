"""Eviction candidates, their order, and how many are needed; for all strategies that evict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api.protocol import (
    ANNOTATION_EVICTION_POLICY,
    ANNOTATION_EVICTION_PRIORITY,
    LABEL_EVICTION_ENABLED,
    LABEL_PRIORITY,
)
from api.qos import PriorityBand
from koordlet.strategies.strategy import StrategySettings
from koordlet.strategies.view import Group, NodeView

USED = "used"
"""Name under which released usage is counted, beside the names of resources."""
PENDING_SECONDS = 120.0
"""Time for which an eviction that began counts as releasing what the pod holds."""

_DEFAULT_PRIORITY = {PriorityBand.PROD: 9500, PriorityBand.MID: 7500, PriorityBand.BATCH: 5500, PriorityBand.FREE: 3500}

Percent = Annotated[int, Meta(ge=0, le=100)]
Threshold = Annotated[int, Meta(ge=1, le=100)]
"""Level at which eviction starts: at 0 it would never end."""


class EvictSettings(StrategySettings, frozen=True):
    """Settings of resourceUsedThresholdWithBE that both evicting strategies read."""

    enable: bool = False
    evict_enabled_priority_threshold: int | None = None
    """Highest priority of pods that opted in to eviction by usage; unset switches that off."""
    allocatable_evict_priority_threshold: Annotated[int, Meta(ge=0, le=7999)] | None = None
    """Highest priority of pods that opted in to eviction by requests; unset switches that off."""


@dataclass(frozen=True, slots=True)
class EvictionGoal:
    """Amount of a resource to release by evicting pods in this order."""

    feature: str
    resource: str
    """Resource name for requests, USED for usage."""
    release: int
    candidates: Sequence[Group]
    reason: str


@dataclass(slots=True)
class RecentEvictions:
    """The cooldown of a strategy, and the amounts that evictions by any strategy are about to release."""

    cooldown_seconds: float
    last: float | None = None

    def cooling(self, now: float) -> bool:
        """Return whether it is too early for another eviction; the start of the agent counts as one."""
        if self.last is None:
            self.last = now
        return now - self.last < self.cooldown_seconds

    def choose(
        self, view: NodeView, goals: Iterable[EvictionGoal], used: Callable[[Group], int], now: float
    ) -> list[tuple[Group, EvictionGoal]]:
        """Choose candidates of the goals in turn; what one releases counts for all goals of that resource.

        Only evictions that began, or are being asked for, count. Candidates that release nothing of a goal's resource,
        or an unknown amount, are skipped, and so are those whose eviction was refused lately.
        """
        ending = leaving(view, now)
        released: dict[str, int] = {}
        for pod in view.pods:
            if pod.path in ending:
                _credit(released, _amounts(pod, used))
        passed = ending | view.evictions_refused
        chosen: list[tuple[Group, EvictionGoal]] = []
        for goal in goals:
            for pod in goal.candidates:
                if released.get(goal.resource, 0) >= goal.release:
                    break
                amounts = _amounts(pod, used)
                if pod.path in passed or not amounts.get(goal.resource):
                    continue
                passed |= {pod.path}
                self.last = now
                chosen.append((pod, goal))
                _credit(released, amounts)
        return chosen


def leaving(view: NodeView, now: float, pending_seconds: float = PENDING_SECONDS) -> frozenset[str]:
    """Return the paths of pods that are about to end: their evictions are asked for, or began so long ago at most."""
    begun = {path for path, at in view.evictions.items() if now - at < pending_seconds}
    return view.evictions_asked | begun


def _amounts(pod: Group, used: Callable[[Group], int]) -> dict[str, int]:
    return {**pod.requests, USED: used(pod)}


def _credit(released: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        released[name] = released.get(name, 0) + amount


def evictable(pod: Group, feature: str) -> bool:
    """Return whether a pod is active, not protected, and its eviction policy, if any, names the feature; an unreadable
    policy forbids it."""
    if not pod.active or pod.protected:
        return False
    policy = pod.annotations.get(ANNOTATION_EVICTION_POLICY)
    return policy is None or feature in _names(policy)


def _names(text: str) -> list[Any]:
    try:
        return msgspec.json.decode(text, type=list[Any])
    except (ValueError, RecursionError):  # a surrogate is a ValueError, too
        return []


def opted_in(view: NodeView, feature: str, priority_threshold: int) -> list[Group]:
    """Return the pods evictable by this feature that carry the opt-in label and are not above the priority."""
    return [
        pod
        for pod in view.pods
        if evictable(pod, feature)
        and pod.labels.get(LABEL_EVICTION_ENABLED) == "true"
        and priority_of(pod) <= priority_threshold
    ]


def priority_of(pod: Group) -> int:
    """Return the pod's priority, or its band's default where it has none or zero."""
    return pod.priority or _DEFAULT_PRIORITY[pod.band]


def by_eviction_order(pods: Iterable[Group], size: Callable[[Group], float]) -> list[Group]:
    """Sort by eviction priority, priority and sub-priority, each lowest first; then by size, biggest first."""

    def order(pod: Group) -> tuple[float, ...]:
        priority = priority_of(pod)
        first = _number(pod.annotations.get(ANNOTATION_EVICTION_PRIORITY), 0)
        return (first, priority, _number(pod.labels.get(LABEL_PRIORITY), priority), -size(pod))

    return sorted(pods, key=order)


def by_priority(pods: Iterable[Group], size: Callable[[Group], float]) -> list[Group]:
    """Sort by priority, lowest first, then by size, biggest first, then by name, last first."""
    named = sorted(pods, key=lambda pod: pod.name, reverse=True)
    return sorted(named, key=lambda pod: (priority_of(pod), -size(pod)))


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text, 0)
    except ValueError:
        return default


def stop_level(threshold_percent: int | None, lower_percent: int | None, key: str, gap: int = 2) -> int:
    """Return the level at which to stop: as set, else `gap` below the threshold.

    Raises ValueError when it is not below the threshold, because each eviction would then call for the next.
    """
    if threshold_percent is None:
        return 0
    lower = max(threshold_percent - gap, 0) if lower_percent is None else lower_percent
    if lower >= threshold_percent and lower_percent is not None:
        raise ValueError(f"{key} {lower} must be below the threshold {threshold_percent}; lower it or leave it out")
    return lower
