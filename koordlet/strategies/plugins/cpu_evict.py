"""Eviction for CPU: best-effort pods that get too little to make progress, and others that opted in.

Three features of Koordinator's, in its order: satisfaction of best-effort work, requests over the allocatable amount,
usage of the node. At least 20 s pass between evictions.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from api.cpuset import parse_cpuset
from api.intents import Intent, Knob
from api.protocol import BATCH_CPU
from api.qos import QoSClass
from koordlet.strategies.cpuquota import PERIOD_US, parse_quota
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
from koordlet.strategies.overcommitment import (
    GAP_PERCENT,
    STEADY_TICKS,
    LedgerLowerPercent,
    LedgerPercent,
    Overcommitment,
)
from koordlet.strategies.sampling import Samples
from koordlet.strategies.strategy import BEST_EFFORT, SENSITIVE, Strategy
from koordlet.strategies.view import KubeQoS, NodeView

COOLDOWN_SECONDS = 20.0


class CpuEvictSettings(EvictSettings, frozen=True):
    """Part of resourceUsedThresholdWithBE; an unset threshold leaves its feature off."""

    be_upper_percent: Percent | None = field(default=None, name="cpuEvictBESatisfactionUpperPercent")
    """Satisfaction that evictions are to reach."""
    be_lower_percent: Percent | None = field(default=None, name="cpuEvictBESatisfactionLowerPercent")
    """Satisfaction below which pods are evicted, at most 60."""
    be_usage_percent: Percent = field(default=90, name="cpuEvictBEUsageThresholdPercent")
    """Percent of its CPUs that best-effort work must use before pods are evicted."""
    window_seconds: Annotated[int, Meta(ge=1, le=3600)] | None = field(default=None, name="cpuEvictTimeWindowSeconds")
    policy: Literal["evictByRealLimit", "evictByAllocatable"] = field(default="evictByRealLimit", name="cpuEvictPolicy")
    """Base of satisfaction: the real limit, or the allocatable amount."""
    threshold_percent: Threshold | None = field(default=None, name="cpuEvictThresholdPercent")
    lower_percent: Percent | None = field(default=None, name="cpuEvictLowerPercent")
    allocatable_threshold_percent: LedgerPercent | None = field(
        default=None, name="cpuAllocatableEvictThresholdPercent"
    )
    allocatable_lower_percent: LedgerLowerPercent | None = field(default=None, name="cpuAllocatableEvictLowerPercent")

    def __post_init__(self) -> None:
        stop_level(self.threshold_percent, self.lower_percent, "cpuEvictLowerPercent")
        stop_level(
            self.allocatable_threshold_percent,
            self.allocatable_lower_percent,
            "cpuAllocatableEvictLowerPercent",
            GAP_PERCENT,
        )
        lower, upper = self.be_lower_percent, self.be_upper_percent
        if (lower is None) != (upper is None):
            raise ValueError("cpuEvictBESatisfactionLowerPercent and ...UpperPercent go together; set or drop both")
        if lower is not None and upper is not None and not (0 < lower <= 60 and lower <= upper < 100):
            raise ValueError(
                f"cpuEvictBESatisfactionLowerPercent {lower} must be in 1..60 and not above the upper percent "
                f"{upper}, which must be below 100; drop both to switch the feature off"
            )


class CpuEvict(Strategy[CpuEvictSettings]):
    """Evictions for CPU: never of protected pods, and of pods not labelled best-effort only those that opted in.

    Reads: usage, requests and limit of best-effort work; allocatable amounts; node usage
    Intents: evictions, 20 s apart
    Default: off, gates closed
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceUsedThresholdWithBE"
    features: ClassVar[Mapping[str, bool]] = {"BECPUEvict": False, "CPUAllocatableEvict": False, "CPUEvict": False}
    settings_type = CpuEvictSettings
    example: ClassVar[Mapping[str, Any]] = {
        "enable": True,
        "cpuEvictBESatisfactionLowerPercent": 40,
        "cpuEvictBESatisfactionUpperPercent": 80,
        "cpuEvictThresholdPercent": 60,
        "cpuAllocatableEvictThresholdPercent": 110,
        "evictEnabledPriorityThreshold": 9999,
        "allocatableEvictPriorityThreshold": 7999,
    }
    repeats: ClassVar[bool] = True

    def __init__(self, settings: CpuEvictSettings | None = None, features: Mapping[str, bool] | None = None) -> None:
        super().__init__(settings, features)
        self._best_effort = Samples()
        self._node = Samples()
        self._ledger = Overcommitment("CPUAllocatableEvict", lambda pod: pod.cpu_name)
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
            *(self._by_satisfaction(view, now) if self.gates["BECPUEvict"] else ()),
            *(self._by_ledger(view) if self.gates["CPUAllocatableEvict"] else ()),
            *(self._by_usage(view, now) if self.gates["CPUEvict"] else ()),
        ]
        if self._evictions.cooling(now):
            return []
        chosen = self._evictions.choose(view, goals, lambda pod: int(pod.cpu_millicores or 0), now)
        return [
            self.evict(pod.path, f"trigger by koordlet feature {goal.feature}: {goal.reason}") for pod, goal in chosen
        ]

    def _by_satisfaction(self, view: NodeView, now: float) -> list[EvictionGoal]:
        values = best_effort_values(view, self.settings.policy)
        if self.settings.be_lower_percent is None or values is None:
            return []
        window = self._window_seconds(view)
        if self.settings.policy == "evictByAllocatable":
            window = max(window, STEADY_TICKS * view.interval_seconds)
        self._best_effort.add(now, window, *values)
        if not self._best_effort.covers(window, view.interval_seconds):
            return []
        usage, request, limit = self._best_effort.means()
        lasting = satisfaction_release(usage, request, limit, self.settings)
        release = min(satisfaction_release(*values, self.settings), lasting)
        if release <= 0:
            return []
        pods = [pod for pod in view.pods if pod.qos is QoSClass.BE and evictable(pod, "BECPUEvict")]
        candidates = by_priority(pods, lambda pod: (pod.cpu_millicores or 0) / max(pod.requests.get(BATCH_CPU, 0), 1))
        reason = f"best-effort work requests {request:.0f} millicores, has {limit:.0f} and uses {usage:.0f}"
        return [EvictionGoal("BECPUEvict", BATCH_CPU, release, candidates, reason)]

    def _by_ledger(self, view: NodeView) -> list[EvictionGoal]:
        config = self.settings
        return self._ledger.goals(
            view,
            config.allocatable_threshold_percent,
            config.allocatable_lower_percent,
            config.allocatable_evict_priority_threshold,
        )

    def _by_usage(self, view: NodeView, now: float) -> list[EvictionGoal]:
        threshold, priority = self.settings.threshold_percent, self.settings.evict_enabled_priority_threshold
        if threshold is None or priority is None or view.cpu_millicores is None:
            return []
        window = self._window_seconds(view)
        self._node.add(now, window, view.cpu_millicores)
        percent = int(self._node.means()[0]) * 100 // view.node.cpu_millicores
        if not self._node.covers(window, view.interval_seconds) or percent < threshold:
            return []
        lower = stop_level(threshold, self.settings.lower_percent, "")
        candidates = [pod for pod in opted_in(view, "CPUEvict", priority) if pod.cpu_millicores is not None]
        candidates = by_eviction_order(candidates, lambda pod: pod.cpu_millicores or 0.0)
        reason = f"the node uses {percent} percent of its CPU, the threshold is {threshold}"
        return [EvictionGoal("CPUEvict", USED, view.node.cpu_millicores * (percent - lower) // 100, candidates, reason)]

    def _window_seconds(self, view: NodeView) -> float:
        return max(float(self.settings.window_seconds or 0), view.interval_seconds)


def best_effort_values(view: NodeView, policy: str) -> tuple[float, float, float] | None:
    """Return usage, request and limit of best-effort work in millicores; None where its usage is not known.

    The real limit is the smaller of its CPUs and its quota; -1 stands for an allocatable amount that is not known.
    """
    directory = view.qos_dir(KubeQoS.BEST_EFFORT)
    if directory is None or directory.cpu_millicores is None:
        return None
    request = sum(pod.requests.get(BATCH_CPU, 0) for pod in view.pods if pod.qos is QoSClass.BE)
    if policy == "evictByAllocatable":
        promised = view.node.allocatable.get(BATCH_CPU)
        return directory.cpu_millicores, request, -1 if promised is None else max(promised, 1)
    cpus = len(parse_cpuset(directory.knobs.get(Knob.CPUSET_CPUS, ""))) or len(view.node.cpus)
    quota = parse_quota(directory.knobs.get(Knob.CPU_MAX, "max"))
    limit = cpus * 1000 if quota is None else min(cpus * 1000, quota * 1000 // PERIOD_US)
    return directory.cpu_millicores, request, limit


def satisfaction_release(usage: float, request: float, limit: float, settings: CpuEvictSettings) -> int:
    """Return millicores of requests to release until the limit covers the upper percent of the rest; 0 for none."""
    lower, upper = settings.be_lower_percent, settings.be_upper_percent
    if lower is None or upper is None or limit <= 0 or request <= 0:
        return 0
    idle = limit >= 1000 and usage * 100 < limit * settings.be_usage_percent
    if idle or limit * 100 > request * lower:
        return 0
    return max(int(request * upper / 100 - limit), 0)
