"""Overcommitment: requests of low-priority pods over the amount allocatable to them, and evictions that end it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from api.qos import PriorityBand
from koordlet.strategies.eviction_order import EvictionGoal, by_eviction_order, opted_in, priority_of, stop_level
from koordlet.strategies.view import Group, NodeView

STEADY_TICKS = 3
"""Ticks in a row that a resource must be overcommitted: allocatable amounts jump."""

LedgerPercent = Annotated[int, Meta(ge=1, le=10000)]
LedgerLowerPercent = Annotated[int, Meta(ge=0, le=10000)]
GAP_PERCENT = 10
"""Distance from the threshold to the level at which to stop, where that is not set."""


@dataclass(slots=True)
class Overcommitment:
    """One eviction feature: its name, and the resource of a pod that it counts."""

    feature: str
    name_of: Callable[[Group], str]
    over: dict[str, int] = field(default_factory=dict)
    """Number of ticks in a row that each resource has been overcommitted."""

    def goals(
        self, view: NodeView, threshold: int | None, lower: int | None, priority: int | None
    ) -> list[EvictionGoal]:
        """Return one goal for each overcommitted resource of batch and mid pods; none without threshold or priority."""
        if threshold is None or priority is None:
            return []
        stop = stop_level(threshold, lower, self.feature, GAP_PERCENT)
        low = [pod for pod in view.pods if pod.band in (PriorityBand.BATCH, PriorityBand.MID)]
        low = [pod for pod in low if priority_of(pod) <= priority]
        releases = overcommitment_releases(low, self.name_of, view.node.allocatable, threshold, stop)
        self.over = {name: self.over.get(name, 0) + 1 for name in releases}
        candidates = opted_in(view, self.feature, priority)
        return [
            self._goal(name, release, candidates, f"exceed {threshold} percent of {view.node.allocatable[name]}")
            for name, release in releases.items()
            if self.over[name] >= STEADY_TICKS
        ]

    def _goal(self, name: str, release: int, candidates: list[Group], how_far: str) -> EvictionGoal:
        pods = [pod for pod in candidates if self.name_of(pod) == name]
        candidates = by_eviction_order(pods, lambda pod: pod.requests.get(name, 0))
        return EvictionGoal(self.feature, name, release, candidates, f"requests of {name} {how_far}")


def overcommitment_releases(
    pods: Iterable[Group],
    name_of: Callable[[Group], str],
    allocatable: Mapping[str, int],
    threshold_percent: int,
    lower_percent: int,
) -> dict[str, int]:
    """Return the amount to release of each resource requested above this percent of its allocatable amount.

    All of it where nothing is allocatable; resources whose allocatable amount is not known are left out.
    """
    requested: dict[str, int] = {}
    for pod in pods:
        name = name_of(pod)
        requested[name] = requested.get(name, 0) + pod.requests.get(name, 0)
    return {
        name: amount - allocatable[name] * lower_percent // 100
        for name, amount in requested.items()
        if name in allocatable and amount * 100 > allocatable[name] * threshold_percent
    }
