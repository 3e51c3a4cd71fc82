"""Memory headroom for online work before it has to wait: reclaim from best-effort work, cap it, evict it.

Each memory domain is checked: the node, and every limited cgroup that online and best-effort work share. It is short
where less is free than the high watermark, or than online work will have taken in `lookaheadSeconds` at the speed of
the last seconds. Each step waits for the one before: page cache and cold memory are reclaimed first; caps follow where
the domain is short again or nothing can be reclaimed; pods are evicted where the shortage goes on under caps. Only a
domain that would be exhausted before an eviction takes effect does not wait.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from api.intents import Intent, Knob, Strength
from koordlet.strategies.eviction_order import by_priority, evictable, leaving
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, MemoryDomain, NodeView

FEATURE = "MemoryHeadroom"
"""Name by which a pod's eviction policy may allow it."""
GROWTH_SECONDS = 5.0
"""Window over which the growth of online work is measured."""
MIN_RECLAIM_BYTES = 1 << 20
"""Smallest reclaim that is worth a write."""
DEAD_BAND_PERCENT = 2
"""Smallest change of a cap that is worth a write, in percent."""
MAX_GROUPS_RECLAIMED = 8
"""Most groups reclaimed from in one tick; each of them delays the tick."""
ENDING_SECONDS = 5.0
"""Time beyond its grace for which an eviction counts as pending."""
STEADY_TICKS = 2
"""Ticks that caps hold, or that exhaustion is near, before an eviction: a single jump is no growth."""

Percent = Annotated[int, Meta(ge=1, le=40)]


class MemoryHeadroomSettings(StrategySettings, frozen=True):
    """extensions.memoryHeadroom; percents are of the limit, or of the node's memory."""

    enable: bool = False
    low_percent: Percent = 5
    """Free percent below which caps have not sufficed."""
    high_percent: Percent = 10
    """Free percent below which memory is reclaimed."""
    target_percent: Percent = 15
    """Free percent up to which memory is reclaimed, and above which caps are raised."""
    lookahead_seconds: Annotated[int, Meta(ge=1, le=60)] = 5
    """Seconds of online work's growth that must be free too."""
    evict_seconds: Annotated[int, Meta(ge=1, le=60)] = 3
    """Time that an eviction takes: one is not delayed where the domain would be exhausted before."""
    reclaim_percent: Percent = 20
    """Percent of one domain that is reclaimed in a tick at most."""
    step_percent: Annotated[int, Meta(ge=1, le=50)] = 10
    """Percent by which a cap is lowered below present use, or below itself, in a tick."""
    floor_bytes: Annotated[int, Meta(ge=1 << 20)] = 64 << 20
    """Lowest cap."""
    release_seconds: Annotated[int, Meta(ge=1, le=3600)] = 10
    """Time without a shortage between two steps that raise caps."""
    termination_grace_period_seconds: Annotated[int, Meta(ge=0, le=3600)] = 10

    def __post_init__(self) -> None:
        if not self.low_percent < self.high_percent < self.target_percent:
            raise ValueError(
                f"lowPercent {self.low_percent}, highPercent {self.high_percent} and targetPercent "
                f"{self.target_percent} must rise in this order"
            )


@dataclass(slots=True)
class Shortage:
    """State of one domain between ticks."""

    online: list[tuple[float, int]] = field(default_factory=list)
    """Monotonic time and memory of online work, oldest first."""
    reclaimed: bool = False
    """Whether memory was reclaimed in an earlier tick of this shortage."""
    capped_ticks: int = 0
    """Short ticks that began with caps."""
    urgent_ticks: int = 0
    """Ticks in a row in which waiting would have made an eviction come too late."""
    last_short: float = -math.inf
    raised_at: float = -math.inf
    caps: dict[str, int] = field(default_factory=dict)

    def add_online(self, now: float, online_bytes: int) -> tuple[float, float]:
        """Add the memory of online work.

        Returns its growth in bytes per second, over the last seconds or since the last tick, whichever is faster, and
        the latter alone.
        """
        self.online = [*(sample for sample in self.online if now - sample[0] <= GROWTH_SECONDS), (now, online_bytes)]
        (end, last), first, before = self.online[-1], self.online[0], self.online[-2:][0]
        over, latest_growth = ((last - held) / (end - at) if end > at else 0.0 for at, held in (first, before))
        return max(over, latest_growth), latest_growth


@dataclass(frozen=True, slots=True)
class Need:
    """Need of a domain in one tick."""

    missing: int
    """Bytes."""
    short: bool
    reason: str


class MemoryHeadroom(Strategy[MemoryHeadroomSettings]):
    """Reclaims from, caps on and evictions of best-effort groups that are not protected.

    Reads: free memory of the node and of limited cgroups that online and best-effort work share, growth of online
        work, reclaimable memory by group
    Intents: reclaims, `memory.high` (v1: `memory.max`), evictions
    Default: off; 5, 10 and 15 %
    Source: Koord
    """

    section: ClassVar[str] = "extensions.memoryHeadroom"
    settings_type = MemoryHeadroomSettings
    example: ClassVar[Mapping[str, Any]] = {"enable": True}
    repeats: ClassVar[bool] = True

    def __init__(
        self, settings: MemoryHeadroomSettings | None = None, features: Mapping[str, bool] | None = None
    ) -> None:
        super().__init__(settings, features)
        self._shortages: dict[str, Shortage] = {}
        self._chosen: set[str] = set()
        """Pods that this tick's intents evict."""

    @property
    def needs_memory_domains(self) -> bool:
        return self.settings.enable

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return this tick's reclaims, evictions and caps."""
        if not self.settings.enable:
            return []
        if view.memory_domains is None:
            self.stay_silent("memory", "free memory is not measured")
            return []
        self._shortages = {domain.path: self._shortages.get(domain.path, Shortage()) for domain in view.memory_domains}
        self._chosen = set()
        groups = {group.path: group for group in (*view.pods, *view.host_apps)}
        intents: list[Intent] = []
        asked: set[str] = set()
        for domain in reversed(view.memory_domains):
            for intent in self._step_domain(view, domain, groups, now):
                if intent.target not in asked:
                    intents.append(intent)
            asked = {intent.target for intent in intents}
        return [*intents, *self._caps(view)]

    def _step_domain(
        self, view: NodeView, domain: MemoryDomain, groups: Mapping[str, Group], now: float
    ) -> Iterator[Intent]:
        shortage = self._shortages[domain.path]
        inside = {path: groups[path] for path in domain.usage_bytes if path in groups}
        online = sum(domain.usage_bytes[path] for path, group in inside.items() if not group.best_effort)
        growth, latest_growth = shortage.add_online(now, online) if inside else (0.0, 0.0)
        need = need_of(domain, growth, self.settings)
        groups_below = {path: group for path, group in inside.items() if may_reclaim_from(group)}
        hard = Knob.MEMORY_HIGH in view.node.lacking
        shortage.caps = {
            path: cap
            for path, cap in shortage.caps.items()
            if path in groups and may_cap(groups[path], view, hard=hard)
        }
        if not need.short:
            self._relax(domain, shortage, need, now)
            return
        shortage.last_short = now
        if shortage.caps:
            shortage.capped_ticks += 1
        caps = {
            path: next_cap(domain, path, shortage.caps.get(path), self.settings, hard=hard)
            for path, group in groups_below.items()
            if may_cap(group, view, hard=hard)
        }
        plan = reclaim_plan(domain, need.missing, self.settings, view.node.page_bytes)
        spent = domain.free_bytes < domain.limit_bytes * self.settings.low_percent // 100
        grows = growth * self.settings.lookahead_seconds > domain.limit_bytes // 100
        for path, amount in plan.items():
            # Below a cap at its floor, reclaimed page cache grows back at once; reclaim only where every page counts.
            if path in groups_below and (grows or spent or caps.get(path) != shortage.caps.get(path)):
                yield self.reclaim(path, amount, need.reason)
        reserve = 0 if domain.path == "/" else sum(domain.reclaimable_bytes.get(path, 0) for path in groups_below)
        late = domain.free_bytes < latest_growth * self.settings.evict_seconds and reserve < need.missing
        shortage.urgent_ticks = shortage.urgent_ticks + 1 if late else 0
        urgent = shortage.urgent_ticks >= STEADY_TICKS
        if shortage.reclaimed or not plan or late:
            shortage.caps |= caps
        shortage.reclaimed = shortage.reclaimed or bool(plan)
        if urgent or (shortage.capped_ticks >= STEADY_TICKS and spent and reserve < need.missing):
            for path in self._to_evict(view, domain, groups_below, need.missing - reserve, now):
                self._chosen.add(path)
                grace = float(self.settings.termination_grace_period_seconds)
                yield self.evict(path, need.reason, grace)

    def _relax(self, domain: MemoryDomain, shortage: Shortage, need: Need, now: float) -> None:
        """Raise caps after some time without a shortage; the shortage is over when no cap is left."""
        shortage.urgent_ticks = 0
        pause = self.settings.release_seconds
        if now - shortage.last_short < pause:
            return
        shortage.reclaimed, shortage.capped_ticks = False, 0
        room = domain.free_bytes - domain.limit_bytes * self.settings.target_percent // 100
        if not shortage.caps or now - shortage.raised_at < pause or need.missing or room <= 0:
            return
        shortage.raised_at = now
        step = min(domain.limit_bytes * self.settings.step_percent // 100, room)
        step = max(step // len(shortage.caps), MIN_RECLAIM_BYTES)
        raised = {path: cap + step for path, cap in shortage.caps.items()}
        shortage.caps = {path: cap for path, cap in raised.items() if not _is_idle(domain, path, cap, step)}

    def _caps(self, view: NodeView) -> Iterator[Intent]:
        knob = Knob.MEMORY_MAX if Knob.MEMORY_HIGH in view.node.lacking else Knob.MEMORY_HIGH
        lowest: dict[str, tuple[int, str]] = {}
        for domain, shortage in self._shortages.items():
            for path, cap in shortage.caps.items():
                lowest[path] = min(lowest.get(path, (cap, domain)), (cap, domain))
        page = view.node.page_bytes
        for path, (cap, domain) in lowest.items():
            reason = f"memory of {domain} is short again after a reclaim, or online work grows into it"
            yield self.set_knob(path, knob, str(cap // page * page), reason, Strength.HARD)

    def _to_evict(
        self, view: NodeView, domain: MemoryDomain, groups_below: Mapping[str, Group], release: int, now: float
    ) -> list[str]:
        """Return pods to evict, least important first, until their unreclaimable memory covers what is missing."""

        def held(group: Group) -> int:
            return domain.usage_bytes[group.path] - domain.reclaimable_bytes.get(group.path, 0)

        pending = self.settings.termination_grace_period_seconds + ENDING_SECONDS
        ending = leaving(view, now, pending) | self._chosen
        released = sum(held(group) for path, group in groups_below.items() if path in ending)
        chosen = []
        for group in by_priority((each for each in groups_below.values() if evictable(each, FEATURE)), held):
            if released >= release:
                break
            if group.path not in ending | view.evictions_refused and held(group) > MIN_RECLAIM_BYTES:
                chosen.append(group.path)
                released += held(group)
        return chosen


def may_reclaim_from(group: Group) -> bool:
    """Return whether a group is best-effort, running, and not protected."""
    return group.best_effort and group.active and not group.protected


def may_cap(group: Group, view: NodeView, *, hard: bool) -> bool:
    """Return whether a group may be capped: by a `hard` limit, which the kernel enforces by killing, only where pods
    may be evicted at all and this one's policy allows it."""
    return may_reclaim_from(group) and (not hard or (view.may_evict and evictable(group, FEATURE)))


def need_of(domain: MemoryDomain, growth: float, settings: MemoryHeadroomSettings) -> Need:
    """Return the need of a domain; `growth` is that of online work in bytes per second."""
    limit, free = domain.limit_bytes, domain.free_bytes
    ahead = min(int(max(growth, 0.0) * settings.lookahead_seconds), limit // 2)
    short = free < max(limit * settings.high_percent // 100, ahead)
    target = max(limit * settings.target_percent // 100, ahead)
    speed = f", online work takes {growth / 1e6:.0f} MB a second" if growth > 0 else ""
    reason = f"{free >> 20} of {limit >> 20} MiB of {domain.path} are free{speed}; {target >> 20} are to be free"
    return Need(max(target - free, 0), short, reason)


def reclaim_plan(
    domain: MemoryDomain, missing_bytes: int, settings: MemoryHeadroomSettings, page_bytes: int
) -> dict[str, int]:
    """Return bytes to reclaim by path: biggest holder of reclaimable memory first, bounded for one tick; whole
    pages."""
    left = min(missing_bytes, domain.limit_bytes * settings.reclaim_percent // 100)
    plan: dict[str, int] = {}
    for path, held in sorted(domain.reclaimable_bytes.items(), key=lambda item: (-item[1], item[0])):
        amount = min(held, left) // page_bytes * page_bytes
        if amount < MIN_RECLAIM_BYTES or len(plan) == MAX_GROUPS_RECLAIMED:
            break
        plan[path] = amount
        left -= amount
    return plan


def next_cap(
    domain: MemoryDomain, path: str, current: int | None, settings: MemoryHeadroomSettings, *, hard: bool
) -> int:
    """Return a cap one step below present use or below the present cap, but never below unreclaimable memory.

    Some room stays above that: a cap that is a `hard` limit kills a group without page cache left.
    """
    used = domain.usage_bytes[path]
    kept = used - domain.reclaimable_bytes.get(path, 0)
    room = max(kept // 4, settings.floor_bytes) if hard else kept // 32
    step = (100 - settings.step_percent) / 100
    cap = max(int(min(used, current or used) * step), kept + room, settings.floor_bytes)
    return current if current and abs(cap - current) * 100 <= current * DEAD_BAND_PERCENT else cap


def _is_idle(domain: MemoryDomain, path: str, cap: int, step: int) -> bool:
    """Return whether a cap no longer holds anything back."""
    used = domain.usage_bytes.get(path)
    return cap >= domain.limit_bytes or (used is not None and cap - used >= 2 * step)
