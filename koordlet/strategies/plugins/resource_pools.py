"""CPU pools by priority band, each kept within its band of load; after Meituan's LAR.

Protected pods and those with CPUs of their own are in no pool, nor are their CPUs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from api.cpuset import format_cpuset
from api.crds.node_slo import POOL_NAME
from api.intents import Intent, Knob, Strength
from api.qos import QoSClass
from koordlet.strategies.best_effort import bound_cpus, lendable_cpus
from koordlet.strategies.cpupick import pick_cpus
from koordlet.strategies.cpuquota import format_quota, quota_of
from koordlet.strategies.eviction_order import RecentEvictions, by_eviction_order
from koordlet.strategies.pool_isolation import (
    ForcedPreemption,
    Isolation,
    PoolMemory,
    forced_goal,
    isolation,
    memory_goals,
)
from koordlet.strategies.pool_rebalance import CpuPool, rebalance
from koordlet.strategies.strategy import BEST_EFFORT, SENSITIVE, Strategy, StrategySettings
from koordlet.strategies.throttling import Caps, CpuThrottle, capped
from koordlet.strategies.view import CpuThread, Group, GroupKind, NodeView

HOURS = 24
EARLY_SECONDS = 300
"""Time before an hour from which its predicted peak counts."""
COOLDOWN_SECONDS = 4.0
"""Least time between two evictions."""
Percent = Annotated[int, Meta(ge=1, le=100)]
Name = Annotated[str, Meta(pattern=POOL_NAME)]
Band = Literal["koord-prod", "koord-mid", "koord-batch", "koord-free"]


class PoolSettings(Isolation, frozen=True, kw_only=True):
    """One pool."""

    name: Name
    low_percent: Percent
    """Load below which the pool releases CPUs."""
    high_percent: Percent
    """Load above which it takes some from lower pools."""
    bands: tuple[Band, ...] = msgspec.field(default=(), name="priorityClasses")
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of its members besides those of its bands: a pod with all of them is in this pool whatever its band."""
    workloads: tuple[str, ...] | None = None
    """Members besides, as `Kind/namespace/name`; the manager lists them for pools with a grade."""
    memory: PoolMemory | None = None
    """Without it no pod is evicted for the memory of its pool."""
    least_cpus: Annotated[int, Meta(ge=1, le=1024)] = 1
    """CPUs that it keeps while it has pods."""
    peak_millicores: tuple[Annotated[int, Meta(ge=0, le=10_000_000)], ...] = ()
    """Predicted peak of its pods for each hour of the day (UTC), of 24 hours or none: while it has pods it keeps what
    this loads to its upper bound, as far as the other pools keep theirs."""

    def __post_init__(self) -> None:
        if self.low_percent >= self.high_percent:
            raise ValueError(f"pool {self.name}: lowPercent {self.low_percent} must be below {self.high_percent}")
        if len(self.peak_millicores) not in (0, HOURS):
            raise ValueError(f"pool {self.name}: peakMillicores has {len(self.peak_millicores)} values, not {HOURS}")
        if not self.bands and not self.labels and self.workloads is None:
            raise ValueError(f"pool {self.name} has no members; give priorityClasses or labels")

    def holds(self, pod: Group) -> bool:
        """Return whether a pod is its member whatever its band."""
        labelled = bool(self.labels) and all(pod.labels.get(key) == value for key, value in self.labels.items())
        return labelled or (bool(pod.workload) and pod.workload in (self.workloads or ()))

    def peak_cpus(self, wall_seconds: float) -> int:
        """Return the CPUs that the predicted peak loads to the upper bound, of this hour or the one that is near."""
        if not self.peak_millicores:
            return 0
        hour, rest = divmod(int(wall_seconds) % (HOURS * 3600), 3600)
        near = self.peak_millicores[(hour + 1) % HOURS] if rest >= 3600 - EARLY_SECONDS else 0
        return -(-max(self.peak_millicores[hour], near) // (10 * self.high_percent))


class Degrade(StrategySettings, frozen=True):
    """Throttling of single pods, step by step, when a pool is overloaded and no lower one can lend."""

    load_percent: Percent = 95
    interval_seconds: Annotated[int, Meta(ge=1, le=3600)] = 10
    cpu_throttle: CpuThrottle = CpuThrottle()


class ResourcePoolsSettings(StrategySettings, frozen=True):
    """extensions.resourcePools; highest rank first, the last pool has the rest."""

    enable: bool = False
    pools: tuple[PoolSettings, ...] = (
        PoolSettings(name="critical", bands=("koord-prod",), low_percent=30, high_percent=50),
        PoolSettings(name="ordinary", bands=("koord-mid",), low_percent=45, high_percent=60),
        PoolSettings(name="offline", bands=("koord-batch", "koord-free"), low_percent=50, high_percent=80),
    )

    release_seconds: Annotated[int, Meta(ge=0, le=3600)] = 30
    """Time that a load must be below its band before the pool releases CPUs; it takes CPUs at once."""
    degrade: Degrade | None = None
    """Without it no pod is throttled."""
    forced_preemption: ForcedPreemption | None = None
    """Without it lower pools keep what is predicted of them, and no pod is evicted for a higher pool."""

    def __post_init__(self) -> None:
        bands = [band for pool in self.pools for band in pool.bands]
        if len(self.pools) < 2 or len(set(bands)) < len(bands):
            raise ValueError("pools: at least two, and each priority class in one of them; correct the list")
        shares = sum(pool.memory.share_percent for pool in self.pools if pool.memory is not None)
        if len({pool.name for pool in self.pools}) < len(self.pools) or shares > 100:
            raise ValueError(f"pools: names must differ, and shares of memory sum up to {shares}, at most 100")


class ResourcePools(Strategy[ResourcePoolsSettings]):
    """CPUs of pods and their containers by pool, and quotas of degraded pods; each pool keeps its CPUs between
    ticks. Where a pool has them: disk, cache, network and OOM settings of its pods, and evictions for its memory.

    Reads: CPU usage, limits and memory of pods
    Intents: `cpuset.cpus`, `cpu.max` of degraded pods, per pool `io.*`, resctrl, traffic classes, `oom_score_adj`,
        evictions
    Default: off; 30–50, 45–60, 50–80 %
    Source: LAR (Meituan)
    """

    section: ClassVar[str] = "extensions.resourcePools"
    settings_type = ResourcePoolsSettings
    example: ClassVar[Mapping[str, Any]] = {
        "enable": True,
        "forcedPreemption": {"memoryPercent": 2, "memoryLowerPercent": 1},
    }
    repeats: ClassVar[bool] = True

    def __init__(
        self, settings: ResourcePoolsSettings | None = None, features: Mapping[str, bool] | None = None
    ) -> None:
        super().__init__(settings, features)
        self._owned: list[list[int]] = []
        self._caps: list[Caps] = []
        self._next_step = 0.0
        self._used: dict[str, float] = {}
        self._low_since: dict[int, float] = {}
        self._evictions = RecentEvictions(COOLDOWN_SECONDS)

    @property
    def limited_classes(self) -> frozenset[QoSClass]:
        """LS as well: its pools name the bands whose pods they hold."""
        return SENSITIVE if self.settings.enable else BEST_EFFORT

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the CPUs of every pool with pods, the same on every tick in which all loads stay within their bands,
        and what its pools have besides, also where there are too few CPUs."""
        if not self.settings.enable:
            self._owned, self._caps = [], []
            return []
        members = self._members(view)
        return [
            *self._divided(view, members, now),
            *self._isolated(view, members),
            *self._evicted(view, members, now),
        ]

    def _divided(self, view: NodeView, members: Sequence[Sequence[Group]], now: float) -> list[Intent]:
        """Return the CPUs of the pools and the quotas of degraded pods; nothing where the CPUs are too few."""
        taken = bound_cpus(view)
        cpus = {cpu.id: cpu for cpu in lendable_cpus(view) if cpu.id not in taken}
        least = sum(pool.least_cpus for pool, pods in zip(self.settings.pools, members, strict=True) if pods)
        if least > len(cpus):
            self.problems[self.section] = f"{len(cpus)} CPUs are too few for the pools' {least}; lower leastCpus"
            return []
        self._used = {pod.path: self._usage(pod) for pods in members for pod in pods}
        self._adopt(cpus)
        floors = self._forced(members, self._floors(members, len(cpus) - least, view.time_seconds))
        pools = [self._pool(rank, pods, len(cpus), floors[rank]) for rank, pods in enumerate(members)]
        self._move(rebalance([self._damped(rank, pool, now) for rank, pool in enumerate(pools)]), cpus)
        intents = [
            intent for rank, pods in enumerate(members) for intent in self._writes(view, rank, pools[rank], pods)
        ]
        return [*intents, *self._degraded(view, self.settings.degrade, members, now)]

    def _forced(self, members: Sequence[Sequence[Group]], floors: list[int]) -> list[int]:
        """Return the floors without what is predicted of the pools below one that is overloaded."""
        forced = self.settings.forced_preemption
        if forced is None:
            return floors
        for rank, (owned, pods) in enumerate(zip(self._owned, members, strict=True)):
            # One that has no CPUs yet is not overloaded: it is about to get some.
            if owned and sum(self._used[pod.path] for pod in pods) > len(owned) * 10 * forced.load_percent:
                lower = zip(self.settings.pools[rank + 1 :], floors[rank + 1 :], strict=True)
                return [*floors[: rank + 1], *(min(pool.least_cpus, floor) for pool, floor in lower)]
        return floors

    def _isolated(self, view: NodeView, members: Sequence[Sequence[Group]]) -> Iterator[Intent]:
        for pool, pods in zip(self.settings.pools, members, strict=True):
            for each in isolation(view, pool.name, pool, pods, self.problems):
                reason = f"pool {pool.name} has settings of its own"
                yield self.set_knob(each.target, each.knob, each.value, reason, each.strength)

    def _evicted(self, view: NodeView, members: Sequence[Sequence[Group]], now: float) -> Iterator[Intent]:
        """Return evictions for one reason at a time: that of the node as a whole first."""
        pools, forced = self.settings.pools, self.settings.forced_preemption
        goals = list(memory_goals(view, [(pool.name, pool.memory) for pool in pools], members))
        first = None if forced is None else forced_goal(view, forced, [pool.name for pool in pools], members)
        if self._evictions.cooling(now):
            return
        for goal in goals if first is None else [first, *goals]:
            # The node's memory includes pods that are ending; a pool's usage is that of its active pods.
            own = frozenset(pod.path for pod in (view.pods if goal is first else goal.candidates))

            def used(pod: Group, own: frozenset[str] = own) -> int:
                return (pod.memory_bytes or 0) if pod.path in own else 0

            chosen = self._evictions.choose(view, [goal], used, now)
            yield from (self.evict(pod.path, goal.reason) for pod, _ in chosen)
            if chosen:
                return

    def _degraded(
        self, view: NodeView, degrade: Degrade | None, members: Sequence[Sequence[Group]], now: float
    ) -> Iterator[Intent]:
        """Return caps of single pods; steps are made in intervals, up again once the load is normal."""
        if degrade is None or len(self._caps) != len(members):
            self._caps = [Caps() for _ in members]
        if degrade is None:
            return
        due = now >= self._next_step
        self._next_step = now + degrade.interval_seconds if due else self._next_step
        for caps, owned, pods in zip(self._caps, self._owned, members, strict=True):
            caps.keep({pod.path for pod in pods})
            overload = int(sum(self._used[pod.path] for pod in pods)) - len(owned) * 10 * degrade.load_percent
            if due and overload > 0:
                ordered = by_eviction_order(pods, lambda pod: pod.cpu_millicores or 0.0)
                caps.lower_until(ordered, degrade.cpu_throttle, overload)
            elif due:
                caps.raise_all(degrade.cpu_throttle)
            reason = f"its pool is loaded above {degrade.load_percent} percent and no lower one can lend"
            for pod in (pod for pod in pods if pod.path in caps.now):
                for path, millicores in capped(view, pod, caps.now[pod.path]):
                    yield self.set_knob(path, Knob.CPU_MAX, format_quota(quota_of(millicores)), reason, Strength.HARD)

    def _usage(self, pod: Group) -> float:
        """Return usage as measured now, else last, else by request."""
        requested = float(pod.requests.get(pod.cpu_name, 0))
        return self._used.get(pod.path, requested) if pod.cpu_millicores is None else pod.cpu_millicores

    def _adopt(self, cpus: dict[int, CpuThread]) -> None:
        """Forget CPUs that went, give new ones to the lowest pool; at the start it has all."""
        if len(self._owned) != len(self.settings.pools):
            self._owned = [[] for _ in self.settings.pools]
        self._owned = [[cpu for cpu in owned if cpu in cpus] for owned in self._owned]
        known = {cpu for owned in self._owned for cpu in owned}
        self._owned[-1] += sorted(set(cpus) - known)

    def _members(self, view: NodeView) -> list[list[Group]]:
        """Return the pods of each pool: by labels, else by band; a pod of two pools is in the higher."""
        found: list[list[Group]] = [[] for _ in self.settings.pools]
        for pod in view.pods:
            if not pod.active or pod.protected or pod.own_cpus:
                continue
            ranks = [rank for rank, pool in enumerate(self.settings.pools) if pool.holds(pod)]
            ranks += [rank for rank, pool in enumerate(self.settings.pools) if str(pod.band) in pool.bands]
            if ranks:
                found[ranks[0]].append(pod)
        return found

    def _floors(self, members: Sequence[Sequence[Group]], spare: int, wall_seconds: float) -> list[int]:
        """Return the CPUs that each pool keeps; what predicted peaks add goes to higher pools first."""
        floors = []
        for pool, pods in zip(self.settings.pools, members, strict=True):
            more = min(max(pool.peak_cpus(wall_seconds) - pool.least_cpus, 0), spare) if pods else 0
            spare -= more
            floors.append(pool.least_cpus + more if pods else 0)
        return floors

    def _pool(self, rank: int, pods: Sequence[Group], total: int, floor: int) -> CpuPool:
        settings = self.settings.pools[rank]
        limits = [pod.limits.get(pod.cpu_name) for pod in pods]
        asked = sum(limit or total * 1000 for limit in limits)
        return CpuPool(
            size=len(self._owned[rank]),
            used_millicores=sum(self._used[pod.path] for pod in pods),
            cap=min(-(-asked // 1000), total),
            least=min(floor, total),
            low_percent=settings.low_percent,
            high_percent=settings.high_percent,
        )

    def _damped(self, rank: int, pool: CpuPool, now: float) -> CpuPool:
        """Return the pool with its size kept until its load has been low for long enough."""
        if pool.used_millicores >= pool.size * 10 * pool.low_percent or pool.least == 0:
            self._low_since.pop(rank, None)
            return pool
        since = self._low_since.setdefault(rank, now)
        return pool if now - since >= self.settings.release_seconds else replace(pool, low_percent=0)

    def _move(self, sizes: Sequence[int], cpus: dict[int, CpuThread]) -> None:
        """Move CPUs, whole cores first, so that every pool has its size and keeps as many of its CPUs as possible."""
        spare: list[int] = []
        for owned, size in zip(self._owned, sizes, strict=True):
            keep = set(pick_cpus([cpus[cpu] for cpu in owned], min(size, len(owned))))
            spare += [cpu for cpu in owned if cpu not in keep]
            owned[:] = [cpu for cpu in owned if cpu in keep]
        for owned, size in zip(self._owned, sizes, strict=True):
            given = pick_cpus([cpus[cpu] for cpu in spare], size - len(owned))
            owned += given
            spare = [cpu for cpu in spare if cpu not in given]

    def _writes(self, view: NodeView, rank: int, pool: CpuPool, pods: Sequence[Group]) -> list[Intent]:
        settings = self.settings.pools[rank]
        load = f"{pool.used_millicores / 10 / pool.size:.0f} percent" if pool.size else "without CPUs"
        reason = f"pool {settings.name} was {load}, to be kept at {settings.low_percent} to {settings.high_percent}"
        groups = [group for pod in pods for group in (pod, *view.containers(pod))]
        if view.node.kubelet_static:
            groups = [group for group in groups if group.kind is GroupKind.CONTAINER]
        text = format_cpuset(self._owned[rank])
        return [self.set_knob(group.path, Knob.CPUSET_CPUS, text, reason, Strength.HARD) for group in groups]
