"""Eviction for memory: when the node is too full, or when more is requested than allocatable.

Three features of Koordinator's, in its order: best-effort pods, requests over the allocatable amount, pods that opted
in. At least 4 s pass between evictions.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import field

from api.intents import Intent
from api.qos import QoSClass
from koordlet.strategies.eviction_order import (
    USED,
    EvictionGoal,
    EvictSettings,
    Percent,
    RecentEvictions,
    Threshold,
    by_eviction_order,
    by_priority,
    evictable,
    opted_in,
    stop_level,
)
from koordlet.strategies.overcommitment import GAP_PERCENT, LedgerLowerPercent, LedgerPercent, Overcommitment
from koordlet.strategies.strategy import BEST_EFFORT, SENSITIVE, Strategy
from koordlet.strategies.view import NodeView

COOLDOWN_SECONDS = 4.0


class MemoryEvictSettings(EvictSettings, frozen=True):
    """Part of resourceUsedThresholdWithBE."""

    threshold_percent: Threshold = field(default=70, name="memoryEvictThresholdPercent")
    """Percent of capacity used, without reclaimable memory."""
    lower_percent: Percent | None = field(default=None, name="memoryEvictLowerPercent")
    """Level at which to stop; two below the threshold where unset."""
    allocatable_threshold_percent: LedgerPercent | None = field(
        default=None, name="memoryAllocatableEvictThresholdPercent"
    )
    allocatable_lower_percent: LedgerLowerPercent | None = field(
        default=None, name="memoryAllocatableEvictLowerPercent"
    )

    def __post_init__(self) -> None:
        stop_level(self.threshold_percent, self.lower_percent, "memoryEvictLowerPercent")
        stop_level(
            self.allocatable_threshold_percent,
            self.allocatable_lower_percent,
            "memoryAllocatableEvictLowerPercent",
            GAP_PERCENT,
        )


class MemoryEvict(Strategy[MemoryEvictSettings]):
    """Evictions for memory: never of protected pods, and of pods not labelled best-effort only those that opted in.

    Reads: memory of node and pods, requests, allocatable amounts
    Intents: evictions, 4 s apart
    Default: off, gates closed, 70 %
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceUsedThresholdWithBE"
    features: ClassVar[Mapping[str, bool]] = {
        "BEMemoryEvict": False,
        "MemoryAllocatableEvict": False,
        "MemoryEvict": False,
    }
    settings_type = MemoryEvictSettings
    example: ClassVar[Mapping[str, Any]] = {
        "enable": True,
        "memoryAllocatableEvictThresholdPercent": 110,
        "evictEnabledPriorityThreshold": 9999,
        "allocatableEvictPriorityThreshold": 7999,
    }
    repeats: ClassVar[bool] = True

    def __init__(self, settings: MemoryEvictSettings | None = None, features: Mapping[str, bool] | None = None) -> None:
        super().__init__(settings, features)
        self._ledger = Overcommitment("MemoryAllocatableEvict", lambda pod: pod.memory_name)
        self._evictions = RecentEvictions(COOLDOWN_SECONDS)

    @property
    def limited_classes(self) -> frozenset[QoSClass]:
        """LS as well where a threshold of priority lets pods opt in."""
        settings = self.settings
        opens = (settings.evict_enabled_priority_threshold, settings.allocatable_evict_priority_threshold)
        return BEST_EFFORT if opens == (None, None) else SENSITIVE

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return this tick's evictions, most expendable first."""
        if not self.settings.enable:
            return []
        goals = [
            *(self._best_effort(view) if self.gates["BEMemoryEvict"] else ()),
            *(self._by_ledger(view) if self.gates["MemoryAllocatableEvict"] else ()),
            *(self._by_usage(view) if self.gates["MemoryEvict"] else ()),
        ]
        if self._evictions.cooling(now):
            return []
        chosen = self._evictions.choose(view, goals, lambda pod: pod.memory_bytes or 0, now)
        return [
            self.evict(pod.path, f"trigger by koordlet feature {goal.feature}: {goal.reason}") for pod, goal in chosen
        ]

    def _best_effort(self, view: NodeView) -> list[EvictionGoal]:
        release = usage_release_bytes(view, self.settings)
        pods = [pod for pod in view.pods if pod.qos is QoSClass.BE and evictable(pod, "BEMemoryEvict")]
        candidates = by_priority(pods, lambda pod: pod.memory_bytes or 0)
        return [EvictionGoal("BEMemoryEvict", USED, release, candidates, self._fullness(view))] if release else []

    def _by_usage(self, view: NodeView) -> list[EvictionGoal]:
        release, priority = usage_release_bytes(view, self.settings), self.settings.evict_enabled_priority_threshold
        if not release or priority is None:
            return []
        candidates = [pod for pod in opted_in(view, "MemoryEvict", priority) if pod.memory_bytes is not None]
        candidates = by_eviction_order(candidates, lambda pod: pod.memory_bytes or 0)
        return [EvictionGoal("MemoryEvict", USED, release, candidates, self._fullness(view))]

    def _by_ledger(self, view: NodeView) -> list[EvictionGoal]:
        config = self.settings
        return self._ledger.goals(
            view,
            config.allocatable_threshold_percent,
            config.allocatable_lower_percent,
            config.allocatable_evict_priority_threshold,
        )

    def _fullness(self, view: NodeView) -> str:
        return (
            f"the node uses {(view.memory_bytes or 0) * 100 // view.node.memory_bytes} percent of its memory, "
            f"the threshold is {self.settings.threshold_percent}"
        )


def usage_release_bytes(view: NodeView, settings: MemoryEvictSettings) -> int:
    """Return bytes above the lower level, by whole percents, from the threshold on; 0 below it or without a
    measurement."""
    if view.memory_bytes is None:
        return 0
    percent = view.memory_bytes * 100 // view.node.memory_bytes
    if percent < settings.threshold_percent:
        return 0
    return (
        view.node.memory_bytes * (percent - stop_level(settings.threshold_percent, settings.lower_percent, "")) // 100
    )
