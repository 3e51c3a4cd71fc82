"""Keeps memory free for online work before it has to wait for it: reclaim from best-effort work, cap it, end it.

Looked at for each memory domain, that is the node and every limited cgroup that both kinds of work share. It is short
where less is free than the high watermark, or than online work will have taken in `lookaheadSeconds` at the speed of
the last seconds. Each step waits for the one before: page cache and cold memory are taken first, caps follow where the
domain is short again or nothing can be taken, an end where caps stand and it goes on. Only a domain that is exhausted
sooner than an end takes does not wait.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from api.intents import Intent, Knob, Strength
from koordlet.strategies.eviction_order import by_priority, evictable
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, MemoryDomain, NodeView

FEATURE = "MemoryHeadroom"
"""Name under which a pod's eviction policy may allow it."""
GROWTH_SECONDS = 5.0
"""How far back the speed of online work is looked for."""
MIN_RECLAIM_BYTES = 1 << 20
"""Less is not worth a write."""
DEAD_BAND_PERCENT = 2
"""Of a cap: smaller changes are not worth a write."""
MAX_GROUPS_RECLAIMED = 8
"""From no more is taken in one tick, which each of them holds up."""
ENDING_SECONDS = 5.0
"""Beyond its grace, how long one that ends counts as on its way."""
STEADY_TICKS = 2
"""So long caps stand, or exhaustion is near, before somebody is ended: a leap is no growth."""

Percent = Annotated[int, Meta(ge=1, le=40)]


class MemoryHeadroomSettings(StrategySettings, frozen=True):
    """extensions.memoryHeadroom; percents are of the limit, or of the node's memory."""

    enable: bool = False
    low_percent: Percent = 5
    """Below it caps have not sufficed."""
    high_percent: Percent = 10
    """Below it memory is taken."""
    target_percent: Percent = 15
    """Taken until so much is free; caps are let go above it."""
    lookahead_seconds: Annotated[int, Meta(ge=1, le=60)] = 5
    """What online work will take in this time is to be free, too."""
    evict_seconds: Annotated[int, Meta(ge=1, le=60)] = 3
    """What an end takes: one is not put off where the domain would be exhausted before."""
    reclaim_percent: Percent = 20
    """Most that is taken from one domain in a tick."""
    step_percent: Annotated[int, Meta(ge=1, le=50)] = 10
    """How far below present use, and below itself, a cap goes in a tick."""
    floor_bytes: Annotated[int, Meta(ge=1 << 20)] = 64 << 20
    """No cap is lower."""
    release_seconds: Annotated[int, Meta(ge=1, le=3600)] = 10
    """Caps rise after so much calm, by a step each time."""
    termination_grace_period_seconds: Annotated[int, Meta(ge=0, le=3600)] = 10

    def __post_init__(self) -> None:
        if not self.low_percent < self.high_percent < self.target_percent:
            raise ValueError(
                f"lowPercent {self.low_percent}, highPercent {self.high_percent} and targetPercent "
                f"{self.target_percent} must rise in this order"
            )


@dataclass(slots=True)
class Shortage:
    """What is remembered of one domain."""

    online: list[tuple[float, int]] = field(default_factory=list)
    """Monotonic time and memory of online work, oldest first."""
    taken: bool = False
    """Whether memory was taken in an earlier tick of this shortage."""
    capped_ticks: int = 0
    """Short ticks that began with caps."""
    hurried_ticks: int = 0
    """Ticks in a row in which an end would have come too late had it been put off."""
    last_short: float = -math.inf
    raised_at: float = -math.inf
    caps: dict[str, int] = field(default_factory=dict)

    def see(self, now: float, online_bytes: int) -> tuple[float, float]:
        """Note what online work holds; returns its growth in bytes per second, over the last seconds or since the last
        tick, whichever is faster, and the latter alone."""
        self.online = [*(sample for sample in self.online if now - sample[0] <= GROWTH_SECONDS), (now, online_bytes)]
        (end, last), first, before = self.online[-1], self.online[0], self.online[-2:][0]
        over, lately = ((last - held) / (end - at) if end > at else 0.0 for at, held in (first, before))
        return max(over, lately), lately


@dataclass(frozen=True, slots=True)
class Need:
    """How a domain stands in one tick."""

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
        self._evicted: dict[str, float] = {}

    @property
    def needs_memory_domains(self) -> bool:
        return self.settings.enable

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Reclaims and ends of this tick, and the caps that stand."""
        if not self.settings.enable:
            return []
        if view.memory_domains is None:
            self.stay_silent("memory", "how much memory is free is not measured")
            return []
        self._shortages = {domain.path: self._shortages.get(domain.path, Shortage()) for domain in view.memory_domains}
        pending = self.settings.termination_grace_period_seconds + ENDING_SECONDS
        self._evicted = {path: at for path, at in self._evicted.items() if now - at < pending}
        groups = {group.path: group for group in (*view.pods, *view.host_apps)}
        happens: list[Intent] = []
        asked: set[str] = set()
        for domain in reversed(view.memory_domains):
            for intent in self._look(view, domain, groups, now):
                if intent.target not in asked:
                    happens.append(intent)
            asked = {intent.target for intent in happens}
        return [*happens, *self._caps(view)]

    def _look(self, view: NodeView, domain: MemoryDomain, groups: Mapping[str, Group], now: float) -> Iterator[Intent]:
        shortage = self._shortages[domain.path]
        inside = {path: groups[path] for path in domain.usage_bytes if path in groups}
        online = sum(domain.usage_bytes[path] for path, group in inside.items() if not group.best_effort)
        growth, lately = shortage.see(now, online) if inside else (0.0, 0.0)
        need = need_of(domain, growth, self.settings)
        theirs = {path: group for path, group in inside.items() if may_be_taken_from(group)}
        shortage.caps = {
            path: cap for path, cap in shortage.caps.items() if path in groups and may_be_taken_from(groups[path])
        }
        if not need.short:
            self._relax(domain, shortage, need, now)
            return
        shortage.last_short = now
        if shortage.caps:
            shortage.capped_ticks += 1
        hard = Knob.MEMORY_HIGH in view.node.lacking
        caps = {path: next_cap(domain, path, shortage.caps.get(path), self.settings, hard=hard) for path in theirs}
        takes = takes_of(domain, need.missing, self.settings, view.node.page_bytes)
        spent = domain.free_bytes < domain.limit_bytes * self.settings.low_percent // 100
        grows = growth * self.settings.lookahead_seconds > domain.limit_bytes // 100
        for path, amount in takes.items():
            # What a cap that goes no lower leaves comes back at once; it is taken only where every page counts.
            if path in theirs and (grows or spent or caps[path] != shortage.caps.get(path)):
                yield self.reclaim(path, amount, need.reason)
        reserve = 0 if domain.path == "/" else sum(domain.reclaimable_bytes.get(path, 0) for path in theirs)
        late = domain.free_bytes < lately * self.settings.evict_seconds and reserve < need.missing
        shortage.hurried_ticks = shortage.hurried_ticks + 1 if late else 0
        hurried = shortage.hurried_ticks >= STEADY_TICKS
        if shortage.taken or not takes or late:
            shortage.caps |= caps
        shortage.taken = shortage.taken or bool(takes)
        if hurried or (shortage.capped_ticks >= STEADY_TICKS and spent and reserve < need.missing):
            for path in self._to_evict(view, domain, theirs, need.missing - reserve, now):
                self._evicted[path] = now
                grace = float(self.settings.termination_grace_period_seconds)
                yield self.evict(path, need.reason, grace)

    def _relax(self, domain: MemoryDomain, shortage: Shortage, need: Need, now: float) -> None:
        """Let caps rise once it has been calm for a while; the shortage is over when none is left."""
        shortage.hurried_ticks = 0
        pause = self.settings.release_seconds
        if now - shortage.last_short < pause:
            return
        shortage.taken, shortage.capped_ticks = False, 0
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
            reason = f"what it had was taken and memory of {domain} is short again, or online work grows into it"
            yield self.set_knob(path, knob, str(cap // page * page), reason, Strength.HARD)

    def _to_evict(
        self, view: NodeView, domain: MemoryDomain, theirs: Mapping[str, Group], release: int, now: float
    ) -> list[str]:
        """Who ends, least important first, until what they hold for good covers what is missing."""

        def held(group: Group) -> int:
            return domain.usage_bytes[group.path] - domain.reclaimable_bytes.get(group.path, 0)

        pending = self.settings.termination_grace_period_seconds + ENDING_SECONDS
        ending = {path for path, at in {**view.evictions, **self._evicted}.items() if now - at < pending}
        released = sum(held(group) for path, group in theirs.items() if path in ending)
        chosen = []
        for group in by_priority((each for each in theirs.values() if evictable(each, FEATURE)), held):
            if released >= release:
                break
            if group.path not in ending and held(group) > MIN_RECLAIM_BYTES:
                chosen.append(group.path)
                released += held(group)
        return chosen


def may_be_taken_from(group: Group) -> bool:
    """Best-effort, running, and not protected."""
    return group.best_effort and group.active and not group.protected


def need_of(domain: MemoryDomain, growth: float, settings: MemoryHeadroomSettings) -> Need:
    """How a domain stands; `growth` is that of online work in bytes per second."""
    limit, free = domain.limit_bytes, domain.free_bytes
    ahead = min(int(max(growth, 0.0) * settings.lookahead_seconds), limit // 2)
    short = free < max(limit * settings.high_percent // 100, ahead)
    wanted = max(limit * settings.target_percent // 100, ahead)
    speed = f", online work takes {growth / 1e6:.0f} MB a second" if growth > 0 else ""
    reason = f"{free >> 20} of {limit >> 20} MiB of {domain.path} are free{speed}; {wanted >> 20} are wanted"
    return Need(max(wanted - free, 0), short, reason)


def takes_of(
    domain: MemoryDomain, missing_bytes: int, settings: MemoryHeadroomSettings, page_bytes: int
) -> dict[str, int]:
    """What to take from whom: the biggest holder of what can be taken first, bounded for one tick; whole pages."""
    left = min(missing_bytes, domain.limit_bytes * settings.reclaim_percent // 100)
    takes: dict[str, int] = {}
    for path, held in sorted(domain.reclaimable_bytes.items(), key=lambda item: (-item[1], item[0])):
        amount = min(held, left) // page_bytes * page_bytes
        if amount < MIN_RECLAIM_BYTES or len(takes) == MAX_GROUPS_RECLAIMED:
            break
        takes[path] = amount
        left -= amount
    return takes


def next_cap(
    domain: MemoryDomain, path: str, current: int | None, settings: MemoryHeadroomSettings, *, hard: bool
) -> int:
    """A step below what it uses or was capped at, but never below what it cannot give up.

    Above the latter stays room to work in: a cap that is a `hard` limit kills whoever has no page cache left.
    """
    used = domain.usage_bytes[path]
    kept = used - domain.reclaimable_bytes.get(path, 0)
    room = max(kept // 4, settings.floor_bytes) if hard else kept // 32
    step = (100 - settings.step_percent) / 100
    cap = max(int(min(used, current or used) * step), kept + room, settings.floor_bytes)
    return current if current and abs(cap - current) * 100 <= current * DEAD_BAND_PERCENT else cap


def _is_idle(domain: MemoryDomain, path: str, cap: int, step: int) -> bool:
    """Whether a cap holds nothing back any more."""
    used = domain.usage_bytes.get(path)
    return cap >= domain.limit_bytes or (used is not None and cap - used >= 2 * step)
