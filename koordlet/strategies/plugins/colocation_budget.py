"""Budget of all best-effort work: what a safe utilization of the node leaves beside the online work, by time of day.

After Bilibili's co-location: lowest weight, a quota that follows the load, whole cores so that no sibling is shared
with online work, a memory cap, eviction where memory is not given back, and daily windows that close gently. Quotas
move as Koordinator's do.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from api.cgroup_path import is_below
from api.cpuset import format_cpuset, parse_cpuset
from api.intents import Intent, Knob, Strength
from koordlet.strategies.best_effort import below_directory, bound_cpus, lendable_cpus, next_count, next_quota_us
from koordlet.strategies.calendar_windows import DayWindow, OpenWindow, opening
from koordlet.strategies.cpupick import pick_cores
from koordlet.strategies.cpuquota import format_quota, parse_quota
from koordlet.strategies.eviction_order import USED, EvictionGoal, RecentEvictions, by_priority, evictable
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, GroupKind, KubeQoS, NodeView

TAINT = "node.koordinator.sh/colocation-closed"
FEATURE = "ColocationBudget"
"""Name by which a pod's eviction policy may allow it."""
COOLDOWN_SECONDS = 30.0
LEAST_WEIGHT = "1"

Percent = Annotated[int, Meta(ge=1, le=100)]


class ColocationBudgetSettings(StrategySettings, frozen=True):
    """extensions.colocationBudget."""

    enable: bool = False
    cpu_safe_percent: Percent | None = 65
    """Percent of CPU capacity that all work together may use; unset leaves CPU alone."""
    memory_safe_percent: Percent | None = 80
    """Percent of memory that all work together may use; unset leaves memory alone."""
    pair_siblings: bool = True
    """Whether best-effort work gets CPUs, by whole cores, beside its quota."""
    windows: tuple[DayWindow, ...] = ()
    """Times of day at which best-effort work may run; always, without any."""
    time_zone: str = "UTC"
    grace_period_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 1800
    """Time before closing in which no new pods come and running ones may finish."""
    effect: Literal["PreferNoSchedule", "NoSchedule"] = "PreferNoSchedule"
    """Effect of the taint; it applies to all pods that do not tolerate it, latency-sensitive ones too."""

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"timeZone {self.time_zone!r} is not known; write it like Asia/Shanghai") from None


class ColocationBudget(Strategy[ColocationBudgetSettings]):
    """CPU and memory limits of the best-effort directory, CPUs of its groups, a taint, evictions of best-effort
    pods.

    Reads: usage of the node and of best-effort work, the clock
    Intents: `cpu.max`, `cpu.weight`, `cpuset.cpus`, `memory.max` of the best-effort directory, a taint, evictions
    Default: off, 65 % and 80 %
    Source: Bilibili
    """

    section: ClassVar[str] = "extensions.colocationBudget"
    settings_type = ColocationBudgetSettings
    example: ClassVar[Mapping[str, Any]] = {"enable": True}

    def __init__(
        self, settings: ColocationBudgetSettings | None = None, features: Mapping[str, bool] | None = None
    ) -> None:
        super().__init__(settings, features)
        self._evictions = RecentEvictions(COOLDOWN_SECONDS)

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which nothing changes; CPU and memory each only where usage is known."""
        directory = view.qos_dir(KubeQoS.BEST_EFFORT)
        if not self.settings.enable or directory is None:
            return []
        opened = opening(self.settings.windows, self.settings.time_zone, view.time_seconds)
        intents: list[Intent] = [
            self.set_knob(directory.path, Knob.CPU_WEIGHT, LEAST_WEIGHT, "online work goes first", Strength.INVISIBLE)
        ]
        intents += self._closing(opened)
        intents += self._cpu(view, directory, opened)
        intents += self._memory(view, directory, opened, now)
        return intents

    def _closing(self, opened: OpenWindow) -> Iterator[Intent]:
        if opened.closes_in_seconds <= self.settings.grace_period_seconds:
            closed = "closed to best-effort work" if opened.percent == 0 else "about to close to best-effort work"
            reason = f"the node is {closed}"
            yield self.set_knob(TAINT, Knob.NODE_TAINT, f"closing:{self.settings.effect}", reason)

    def _cpu(self, view: NodeView, directory: Group, opened: OpenWindow) -> Iterator[Intent]:
        if self.settings.cpu_safe_percent is None:
            return
        if view.cpu_millicores is None or directory.cpu_millicores is None:
            self.stay_silent("cpuSafePercent", "CPU usage of the node or of best-effort work is not measured")
            return
        online = max(view.cpu_millicores - directory.cpu_millicores, 0.0)
        allowed = budget(view.node.cpu_millicores, self.settings.cpu_safe_percent, online, opened)
        reason = f"online work uses {online:.0f} millicores; {max(allowed, 0)} are left for best-effort work"
        current = parse_quota(directory.knobs.get(Knob.CPU_MAX, "max"))
        quota = next_quota_us(allowed, current, view.node.cpu_millicores)
        yield self.set_knob(directory.path, Knob.CPU_MAX, format_quota(quota), reason, Strength.HARD)
        if self.settings.pair_siblings:
            yield from self._cores(view, directory, allowed, reason)

    def _cores(self, view: NodeView, directory: Group, allowed: int, reason: str) -> Iterator[Intent]:
        groups = [directory, *below_directory(view, directory, bound=False)]
        if view.node.kubelet_static:
            groups = [group for group in groups if group.kind is GroupKind.CONTAINER]
        present = parse_cpuset(groups[0].knobs.get(Knob.CPUSET_CPUS, "")) if groups else frozenset()
        count = next_count(allowed, len(present) or None, len(view.node.cpus))
        taken = bound_cpus(view)
        free = [cpu for cpu in lendable_cpus(view) if cpu.id not in taken]
        cpus = pick_cores(view.node.cpus, free, count)
        if not cpus:
            self.problems[directory.path] = "no whole core is left for best-effort work"
            return
        text = format_cpuset(cpus)
        for group in groups:
            yield self.set_knob(group.path, Knob.CPUSET_CPUS, text, reason, Strength.HARD)

    def _memory(self, view: NodeView, directory: Group, opened: OpenWindow, now: float) -> Iterator[Intent]:
        """Cap memory in whole percents, never below present use: that would kill processes at random.

        Pods are evicted instead.
        """
        if self.settings.memory_safe_percent is None:
            return
        if view.memory_bytes is None or directory.memory_bytes is None:
            self.stay_silent("memorySafePercent", "memory of the node or of best-effort work is not measured")
            return
        online = max(view.memory_bytes - directory.memory_bytes, 0)
        allowed = budget(view.node.memory_bytes, self.settings.memory_safe_percent, online, opened)
        step = max(view.node.memory_bytes // 100, 1)
        used = directory.memory_bytes + (directory.cache_bytes or 0)
        used += step if used > allowed else 0  # it may have grown since it was read
        cap = max(allowed // step * step, used, view.node.page_bytes)
        reason = f"online work uses {online} bytes; {max(allowed, 0)} are left for best-effort work"
        yield self.set_knob(directory.path, Knob.MEMORY_MAX, str(cap), reason, Strength.HARD)
        if self._evictions.cooling(now) or directory.memory_bytes <= allowed:
            return
        pods = [pod for pod in view.pods if is_below(pod.path, directory.path) and evictable(pod, FEATURE)]
        candidates = by_priority(pods, lambda pod: pod.memory_bytes or 0)
        release = directory.memory_bytes - max(allowed, 0)
        goal = EvictionGoal(FEATURE, USED, release, candidates, reason)
        for pod, _ in self._evictions.choose(view, [goal], lambda pod: pod.memory_bytes or 0, now):
            yield self.evict(pod.path, reason)


def budget(capacity: int, safe_percent: int, online: float, opened: OpenWindow) -> int:
    """Return what a safe utilization leaves beside online work, times the window's percent; may be negative."""
    left = capacity * safe_percent // 100 - int(online)
    return left * opened.percent // 100 if left > 0 else left
