"""CPU burst of latency-sensitive containers: the kernel's burst, and a quota that grows and shrinks.

Burst, steps, share-pool states and token bucket are Koordinator's. The burst is at most the base quota, because
mainline kernels refuse one above the quota: so it fits any quota set before and after it. A container that uses more
than half of its base in the mean gets neither: it is not throttled by bursts, and needs a larger limit, which the
recommender states.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import ceil
from typing import Annotated, Any, ClassVar, Literal
from zlib import crc32

from msgspec import Meta

from api.intents import Intent, Knob, Strength
from api.kube.cpu_burst import is_busy
from api.kube.resources import CPU
from api.protocol import ANNOTATION_CPU_BURST
from api.qos import QoSClass
from koordlet.strategies.cpuquota import PERIOD_US, format_quota, parse_quota, quota_of
from koordlet.strategies.sampling import Samples
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, NodeView

UP, DOWN = 1.2, 0.8
COOLING_RATIO = 0.9
"""Share of the threshold from which quotas no longer grow."""
MEAN_SECONDS = 60.0
"""Time constant of the mean use of a container."""
_OWN_CPUS_OR_NONE = (QoSClass.LSE, QoSClass.LSR, QoSClass.BE)


class CpuBurstSettings(StrategySettings, frozen=True):
    """cpuBurstStrategy; pods override fields by annotation."""

    policy: Literal["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"] = "none"
    cpu_burst_percent: Annotated[int, Meta(ge=1, le=10000)] = 1000
    """Percent of the limit that may be saved up."""
    cfs_quota_burst_percent: Annotated[int, Meta(ge=100, le=10000)] = 300
    """Percent of the limit up to which the quota may grow."""
    cfs_quota_burst_period_seconds: Annotated[int, Meta(ge=-1, le=86400)] = -1
    """Time that a container may use its grown quota in full; -1 is unlimited, 0 is none."""
    share_pool_threshold_percent: Annotated[int, Meta(ge=0, le=100)] = 50
    """Usage of the shared CPUs from which quotas shrink."""

    @property
    def bursts(self) -> bool:
        """Return whether the kernel's burst is set."""
        return self.policy in ("cpuBurstOnly", "auto")

    @property
    def scales(self) -> bool:
        """Return whether quotas are scaled."""
        return self.policy in ("cfsQuotaBurstOnly", "auto")


class SharePool(IntEnum):
    """State of the shared CPUs, which no pod has for itself."""

    UNKNOWN = 0
    IDLE = 1
    COOLING = 2
    OVERLOAD = 3


class QuotaStep(IntEnum):
    """Change of a quota."""

    DOWN = -1
    REMAIN = 0
    UP = 1


@dataclass(slots=True)
class Bucket:
    """Token bucket in percent-seconds that a container may still use beyond its limit."""

    capacity: float
    tokens: float
    filled: float
    """Time of the last fill or drain, in whole seconds since its creation."""

    @classmethod
    def of(cls, path: str, settings: CpuBurstSettings, now: float) -> "Bucket":
        """Return a bucket less than half full, by a share that differs between containers and is constant for one."""
        capacity = settings.cfs_quota_burst_period_seconds * (settings.cfs_quota_burst_percent - 100)
        return cls(capacity, capacity * 0.5 * (crc32(path.encode()) / 2**32), now)

    def allows(self, usage_percent: int, now: float) -> bool:
        """Drain above the limit, fill below 60 percent of it; returns whether any tokens are left."""
        seconds = int(now - self.filled)
        self.filled += seconds
        if usage_percent >= 100:
            self.tokens -= (usage_percent - 100) * seconds
        elif usage_percent < 60:
            self.tokens += (100 - usage_percent) * seconds
        self.tokens = min(max(self.tokens, -self.capacity), self.capacity)
        return self.tokens > 0


@dataclass(slots=True)
class MeanUse:
    """Mean use of a container, in which what was long ago weighs less."""

    millicores: float
    at: float

    def add(self, millicores: float, now: float) -> None:
        """Add the use since the last time."""
        part = min(max(now - self.at, 0.0) / MEAN_SECONDS, 1.0)
        self.millicores += part * (millicores - self.millicores)
        self.at = now


class CpuBurst(Strategy[CpuBurstSettings]):
    """Burst and quota of running containers with a CPU limit and of their pods; not of best-effort ones, those with
    own CPUs, and those that use more than half of their limit.

    Reads: throttled periods, limits, CPU usage of containers and of the share pool
    Intents: `cpu.max.burst`, `cpu.max` of containers and pods
    Pods: annotation
    Default: policy `none`
    Source: Koordinator
    """

    section: ClassVar[str] = "cpuBurstStrategy"
    features: ClassVar[Mapping[str, bool]] = {"CPUBurst": True}
    settings_type = CpuBurstSettings
    example: ClassVar[Mapping[str, Any]] = {"policy": "auto"}

    def __init__(self, settings: CpuBurstSettings | None = None, features: Mapping[str, bool] | None = None) -> None:
        super().__init__(settings, features)
        self._pool = Samples()
        self._whole = 0
        self._buckets: dict[str, tuple[CpuBurstSettings, Bucket]] = {}
        self._use: dict[str, MeanUse] = {}

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return bursts, and quotas that are not at their base."""
        if not self.gates["CPUBurst"]:
            return []
        ratio = self._pool_ratio(view, now)
        self._whole = quota_of(view.node.cpu_millicores)
        pods = [pod for pod in view.pods if pod.active and pod.qos not in _OWN_CPUS_OR_NONE]
        paths = {container.path for pod in pods for container in view.containers(pod)}
        self._buckets = {path: kept for path, kept in self._buckets.items() if path in paths}
        self._use = {path: kept for path, kept in self._use.items() if path in paths}
        return [intent for pod in pods for intent in self._of_pod(view, pod, ratio, now)]

    def _of_pod(self, view: NodeView, pod: Group, ratio: float | None, now: float) -> Iterator[Intent]:
        settings = read_annotation(pod, ANNOTATION_CPU_BURST, self.settings, self.problems)
        limited = [container for container in view.containers(pod) if container.active and CPU in container.limits]
        bases = {container.path: base_quota_us(container, view.node.cpu_normalization_ratio) for container in limited}
        pod_base = base_quota_us(pod, view.node.cpu_normalization_ratio) if CPU in pod.limits else None
        busy = {group.path for group in limited if self._busy(group, bases[group.path], now)}
        if settings.scales:
            pool = pool_state(ratio, settings.share_pool_threshold_percent)
            quotas = {
                group.path: self._quota(group, bases[group.path], settings, pool, now, may_grow=group.path not in busy)
                for group in limited
            }
            extra = sum(quotas[path] - bases[path] for path in quotas)
            if pod_base is not None and extra:
                yield self._scaled(pod.path, pod_base + extra, "its containers' quotas", pool)
            for path, quota in quotas.items():
                if quota != bases[path]:
                    yield self._scaled(path, quota, f"a base of {bases[path]} us", pool)
        if settings.bursts:
            bursting = [group for group in limited if group.path not in busy]
            yield from self._bursts(pod, pod_base, bursting, bases, settings)

    def _busy(self, group: Group, base: int, now: float) -> bool:
        if group.cpu_millicores is None:
            return False
        use = self._use.setdefault(group.path, MeanUse(group.cpu_millicores, now))
        use.add(group.cpu_millicores, now)
        return is_busy(use.millicores / 1000, base / PERIOD_US)

    def _bursts(
        self, pod: Group, pod_base: int | None, limited: list[Group], bases: dict[str, int], settings: CpuBurstSettings
    ) -> Iterator[Intent]:
        percent = settings.cpu_burst_percent
        reason = f"may save up {percent} percent of its limit, at most its quota"
        bursts = {group.path: min(static_burst_us(group.limits[CPU], percent), bases[group.path]) for group in limited}
        if pod_base is not None and bursts:
            burst = min(sum(bursts.values()), pod_base)
            yield self.set_knob(pod.path, Knob.CPU_BURST, str(burst), reason, Strength.INVISIBLE)
        for path, burst in bursts.items():
            yield self.set_knob(path, Knob.CPU_BURST, str(burst), reason, Strength.INVISIBLE)

    def _scaled(self, path: str, quota: int, base: str, pool: SharePool) -> Intent:
        reason = f"quota {quota} us per 100 ms over {base}; the share pool is {pool.name.lower()}"
        return self.set_knob(path, Knob.CPU_MAX, format_quota(quota), reason, Strength.INVISIBLE)

    def _quota(
        self, group: Group, base: int, settings: CpuBurstSettings, pool: SharePool, now: float, *, may_grow: bool
    ) -> int:
        """Return the base for a container whose quota was removed: any other would be less."""
        allowed = self._allowed(group, settings, now) and may_grow
        step = adjusted(step_of(allowed, group.throttled_ratio), pool)
        current = parse_quota(group.knobs.get(Knob.CPU_MAX, format_quota(base)))
        if current is None:
            return base
        return min(next_quota_us(current, base, settings.cfs_quota_burst_percent, step), max(base, self._whole))

    def _allowed(self, group: Group, settings: CpuBurstSettings, now: float) -> bool:
        if settings.cfs_quota_burst_period_seconds < 0:
            return True
        made_for, bucket = self._buckets.get(group.path, (None, None))
        if bucket is None or made_for != settings:
            bucket = Bucket.of(group.path, settings, now)
        self._buckets[group.path] = (settings, bucket)
        return bucket.allows(int((group.cpu_millicores or 0.0) / group.limits[CPU] * 100), now)

    def _pool_ratio(self, view: NodeView, now: float) -> float | None:
        ratio = share_pool_ratio(view)
        if ratio is not None:
            self._pool.add(now, min(5 * view.interval_seconds, 10.0), ratio)
        means = self._pool.means() if ratio is not None else ()
        return means[0] if means else None


def static_burst_us(limit_millicores: int, percent: int) -> int:
    """Return the burst: this percent of what the limit gives in 100 ms."""
    return limit_millicores * percent


def base_quota_us(group: Group, normalization: float) -> int:
    """Return the quota of a limit, on cores that are faster by the normalization ratio."""
    quota = quota_of(group.limits[CPU])
    return max(ceil(quota / normalization), 1) if normalization > 1 else quota


def share_pool_ratio(view: NodeView) -> float | None:
    """Return the usage of CPUs not requested by LSE or LSR; 1 where there are none, None where it is not known."""
    if view.cpu_millicores is None:
        return None
    own = sum(pod.requests.get(CPU, 0) for pod in view.pods if pod.qos in (QoSClass.LSE, QoSClass.LSR))
    total = view.node.cpu_millicores - own
    used = view.cpu_millicores - sum(pod.cpu_millicores or 0.0 for pod in view.pods if pod.qos in _OWN_CPUS_OR_NONE)
    return max(used, 0.0) / total if total > 0 else 1.0


def pool_state(ratio: float | None, threshold_percent: int) -> SharePool:
    """Return overload from the threshold on, cooling from nine tenths of it."""
    if ratio is None:
        return SharePool.UNKNOWN
    threshold = threshold_percent / 100
    if ratio >= threshold:
        return SharePool.OVERLOAD
    return SharePool.COOLING if ratio >= threshold * COOLING_RATIO else SharePool.IDLE


def step_of(allowed: bool, throttled_ratio: float | None) -> QuotaStep:
    """Return down when the container has used up its burst, up when it was throttled."""
    if not allowed:
        return QuotaStep.DOWN
    return QuotaStep.UP if throttled_ratio else QuotaStep.REMAIN


def adjusted(step: QuotaStep, pool: SharePool) -> QuotaStep:
    """Return the change after the pool's state: in overload all quotas shrink; while cooling or unknown none grows."""
    if pool is SharePool.OVERLOAD:
        return QuotaStep.DOWN
    return min(step, QuotaStep.REMAIN) if pool in (SharePool.COOLING, SharePool.UNKNOWN) else step


def next_quota_us(current: int, base: int, burst_percent: int, step: QuotaStep) -> int:
    """Return a fifth more or less than the current quota, between the base and its ceiling."""
    ceiling = base * burst_percent // 100 if burst_percent > 100 else base
    target = current if step is QuotaStep.REMAIN else int(current * (UP if step is QuotaStep.UP else DOWN))
    return min(max(target, base), ceiling)
