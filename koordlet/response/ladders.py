"""Ladders of rungs by resource, from invisible to drastic: a culprit, a victim and a tick in, intents out.

A rung that has nothing to set (a missing knob, CPUs that cannot be separated) returns nothing and is skipped. Limits
have floors: zero never means unlimited, and no culprit is starved.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from api.cgroup_path import competing_ancestor, is_within
from api.cpuset import format_cpuset
from api.intents import Evict, Intent, Knob, Reclaim, Setting, Strength
from api.kube.cpu_burst import is_busy
from api.qos import PROTECTED_RANK, SENSITIVE_RANK, QoSClass
from koordlet.response.history import Pair
from koordlet.response.host_capabilities import BANDWIDTH_EIGHTHS_GB, CacheCapabilities, CgroupReads
from koordlet.response.limit_control import LimitState, first_limit
from koordlet.response.observation import PERIOD_US, Observation
from koordlet.response.settings import ResponseSettings

STRATEGY = "response"
_LOW_TRAFFIC = "rate=131072 prio=7"
"""A guaranteed megabit per second, the rest with the lowest priority."""


@dataclass(frozen=True, slots=True)
class Interference:
    """Interference of one culprit with one victim, and the verdict that found it."""

    culprit: str
    victim: str
    resource: str
    reason: str
    verdict: str
    lost: float = 0.0
    """Seconds per second that the culprit costs the victim, by the verdict's share."""
    felt: bool = True
    """Whether the victim is slower for it: a loss that is not felt starts no action, and adds none."""
    allowance_cores: float = math.inf
    """CPU time that limits may take from the culprit for this victim: its entitlement, less what they take from others
    for it."""
    claim: float = math.inf
    """Seconds per second that the victim may hold against the culprit (entitlement.py) in this tick."""
    disks: tuple[str, ...] = ()
    """Disks that a limit was first set on; empty for those that both use."""

    @property
    def pair(self) -> Pair:
        """Key of its series."""
        return Pair(self.culprit, self.victim, self.resource)


_HOLDING_KNOBS = frozenset({Knob.CPUSET_CPUS, Knob.CPU_MAX, Knob.FREEZE})

Build = Callable[[Observation, Interference, ResponseSettings], tuple[Intent, ...]]
LimitSetter = Callable[[Observation, Interference, ResponseSettings, float], tuple[Intent, ...]]


@dataclass(frozen=True, slots=True)
class Steering:
    """A limit that follows the victim's loss while its rung is applied; see limit_control.py."""

    ceiling: Callable[[Observation, Interference], float]
    """What the culprit uses without the limit."""
    floor: Callable[[Observation, Interference, ResponseSettings], float]
    """The lowest limit."""
    used: Callable[[Observation, Interference], float]
    """What the culprit uses now, in the same unit."""
    set_limit: LimitSetter
    """Intents for a limit."""
    edge_growth: float
    """Growth of the limit that hurt, in each tick without excess loss."""
    deepest_cut: float
    """Least factor of one step down."""
    searches_ceiling: bool = False
    """Whether the limit may reach its ceiling before it is released, because a calm victim is common."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One action; `knob` is None where the action sets none."""

    name: str
    strength: Strength
    knob: Knob | None
    build: Build
    one_shot: bool = False
    """Sent in one tick only: nothing remains in effect that could be reverted."""
    temporary: bool = False
    """Released after `freeze_seconds`, whatever the loss."""
    steering: Steering | None = None
    relieves_victim: bool = False
    """Set on the victim, and judged by the time that its own quota costs it."""
    outlasts_lift: bool = False
    """Its effect stays for long after it is taken back: a short lift shows nothing."""
    yields: bool = False
    """Makes the culprit yield to others (a weight, the idle class) and takes only what other work wants."""

    @property
    def costs_idle_time(self) -> bool:
        """Return whether the culprit loses CPU time by it although CPUs are free."""
        return self.knob in _HOLDING_KNOBS or self.strength is Strength.DRASTIC

    @property
    def liftable(self) -> bool:
        """Return whether a lift of a tick or two shows what the rung does."""
        return not (self.one_shot or self.temporary or self.relieves_victim or self.outlasts_lift)


def weight_target(observation: Observation, interference: Interference, settings: ResponseSettings) -> str:
    """Return the cgroup whose weight acts on the culprit's share against the victim: its competing ancestor, or "".

    Weights and cpu.idle act between the children of one cgroup only: further down they move time between the culprit
    and its own siblings. Nothing where the ancestor holds a cgroup that may not be limited, and where it is one of the
    kubelet's directories: the kubelet writes their weight, and fails to start when it cannot.
    """
    whole = competing_ancestor(interference.culprit, interference.victim)
    if not whole or observation.is_kubelets(whole):
        return ""
    return whole if observation.classes_within(whole) <= frozenset(settings.limited_classes) else ""


def _setting(
    interference: Interference, settings: ResponseSettings, strength: Strength, knob: Knob, *, at: str, value: str
) -> Setting:
    return Setting(
        strategy=STRATEGY,
        target=at,
        reason=interference.reason,
        verdict=interference.verdict,
        strength=strength,
        knob=knob,
        value=value,
        lease_seconds=settings.lease_seconds,
    )


def _fixed(knob: Knob, value: str, strength: Strength) -> Build:
    def build(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        target = weight_target(observation, interference, settings)
        return (_setting(interference, settings, strength, knob, at=target, value=value),) if target else ()

    return build


def _separate_cpus(
    observation: Observation, interference: Interference, settings: ResponseSettings
) -> tuple[Intent, ...]:
    """Leave a victim that has CPUs of its own these and their SMT siblings; nothing for any other.

    Nothing either where the culprit would move to CPUs that a third cgroup is bound to.
    """
    capabilities = observation.capabilities
    everywhere = frozenset(capabilities.cpus)
    culprits, victims = (
        capabilities.cgroup_cpus.get(path) or everywhere for path in (interference.culprit, interference.victim)
    )
    if victims == everywhere:
        return ()
    cores = {capabilities.cores.get(cpu, cpu) for cpu in victims}
    left = {cpu for cpu in culprits if capabilities.cores.get(cpu, cpu) not in cores}
    if not left.isdisjoint(_bound_to(observation, interference.culprit)):
        return ()
    return _cpuset(interference, settings, left) if left and left != culprits else ()


def _cpuset(interference: Interference, settings: ResponseSettings, cpus: set[int]) -> tuple[Intent, ...]:
    value = format_cpuset(cpus)
    return (_setting(interference, settings, Strength.MILD, Knob.CPUSET_CPUS, at=interference.culprit, value=value),)


def _fewer_cpus(
    observation: Observation, interference: Interference, settings: ResponseSettings, limit: float
) -> tuple[Intent, ...]:
    """Leave the culprit its last whole cores by NUMA node, as many as fit into the limit and at least one.

    Cores that another cgroup is bound to are none of them: it cannot give way to a culprit that moves there. Where too
    few others are left, nothing.
    """
    capabilities = observation.capabilities
    cpus = _cpus_of(observation, interference)
    cores = {capabilities.cores.get(cpu, cpu) for cpu in cpus}
    count = min(max(int(limit * len(cores) / max(len(cpus), 1) + 1e-6), 1), len(cores))
    taken = {capabilities.cores.get(cpu, cpu) for cpu in _bound_to(observation, interference.culprit)}
    free = sorted(cores - taken, key=lambda core: (capabilities.nodes.get(core, 0), core))
    kept = set(free[len(free) - count :]) if len(free) >= count else set()
    left = {cpu for cpu in cpus if capabilities.cores.get(cpu, cpu) in kept}
    return _cpuset(interference, settings, left) if left and left != cpus else ()


def _bound_to(observation: Observation, culprit: str) -> set[int]:
    """Return the CPUs that others are bound to, as far as these were read; what binds culprits may be this rung.

    One that may run wherever the culprit does can give way to it, as a pool does that all share.
    """
    capabilities = observation.capabilities
    everywhere = frozenset(capabilities.cpus)
    own = capabilities.cgroup_cpus.get(culprit) or everywhere
    accused = {culprit, *(each.path for verdict in observation.verdicts for each in verdict.culprits)}
    bound: set[int] = set()
    for path, allowed in capabilities.cgroup_cpus.items():
        if allowed and not own <= allowed and not any(is_within(path, each) for each in accused):
            bound |= allowed
    return bound


def _cpus_of(observation: Observation, interference: Interference) -> frozenset[int]:
    capabilities = observation.capabilities
    return capabilities.cgroup_cpus.get(interference.culprit) or frozenset(capabilities.cpus)


def _cpu_count(observation: Observation, interference: Interference) -> float:
    """Return the CPUs of a culprit that is one cgroup; 0 for a directory, whose children have masks of their own."""
    has_children = len(observation.subtrees.rows(interference.culprit)) > 1
    return 0.0 if has_children else float(len(_cpus_of(observation, interference)))


def _fewest_cpus(observation: Observation, interference: Interference, _settings: ResponseSettings) -> float:
    """Return the CPUs for what the culprit uses less the victim's allowance, rounded; at least half of its own."""
    left = observation.used_by(interference.culprit) - interference.allowance_cores
    return max(math.floor(max(left, 0.0) + 0.5), math.ceil(_cpu_count(observation, interference) / 2), 1.0)


def _cpu_quota(
    _observation: Observation, interference: Interference, settings: ResponseSettings, limit: float
) -> tuple[Intent, ...]:
    text = f"{math.ceil(limit * PERIOD_US)} {PERIOD_US}"
    return (_setting(interference, settings, Strength.HARD, Knob.CPU_MAX, at=interference.culprit, value=text),)


def _cores_used(observation: Observation, interference: Interference) -> float:
    return observation.used_by(interference.culprit)


def _fewest_cores(observation: Observation, interference: Interference, settings: ResponseSettings) -> float:
    """Return what is left when the victim's allowance is taken."""
    used = observation.used_by(interference.culprit)
    return max(used - interference.allowance_cores, settings.quota_floor_millicores / 1000)


def _burst(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    """Let a throttled victim exceed its quota by what it saved before, up to as much again.

    Nothing for one that uses more than half of its quota: it saves little, and needs a larger one.
    Mainline kernels take no burst above the quota (kernel/sched/core.c, tg_set_cfs_bandwidth).
    """
    row = observation.rows.get(interference.victim)
    if row is None or observation.throttled[row] <= settings.loss_budget_seconds_per_second:
        return ()
    if observation.rank(interference.victim) >= PROTECTED_RANK:
        return ()
    quota_us = observation.capabilities.cgroup_quota_us.get(interference.victim)
    if quota_us is None or is_busy(observation.used_by(interference.victim), quota_us / PERIOD_US):
        return ()
    return (
        _setting(
            interference, settings, Strength.INVISIBLE, Knob.CPU_BURST, at=interference.victim, value=str(quota_us)
        ),
    )


def _freeze(_observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    return (_setting(interference, settings, Strength.DRASTIC, Knob.FREEZE, at=interference.culprit, value="1"),)


def _evict(_observation: Observation, interference: Interference, _settings: ResponseSettings) -> tuple[Intent, ...]:
    evict = Evict(
        strategy=STRATEGY,
        target=interference.culprit,
        reason=interference.reason,
        verdict=interference.verdict,
        strength=Strength.DRASTIC,
    )
    return (evict,)


def _reclaim(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    row = observation.rows.get(interference.culprit)
    used = float(observation.memory_bytes[row]) if row is not None else 0.0
    if not used > 0:
        return ()
    taken = Reclaim(
        strategy=STRATEGY,
        target=interference.culprit,
        reason=interference.reason,
        verdict=interference.verdict,
        strength=Strength.MILD,
        amount_bytes=int(used * settings.reclaim_ratio),
    )
    return (taken,)


def _memory_high(
    observation: Observation, interference: Interference, settings: ResponseSettings
) -> tuple[Intent, ...]:
    row = observation.rows.get(interference.culprit)
    used = float(observation.memory_bytes[row]) if row is not None else 0.0
    if not used > 0:
        return ()
    page = 4096
    text = str(max(int(used * 0.9) // page * page, page))
    return (_setting(interference, settings, Strength.HARD, Knob.MEMORY_HIGH, at=interference.culprit, value=text),)


def _io_weight(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    """Lower the IO weight; nothing where no disk between the two honours weights: a trial would only keep the victim
    waiting."""
    weighing, disks = (
        observation.capabilities.weighing_disks,
        observation.disks_between(interference.culprit, interference.victim),
    )
    if weighing is not None and weighing.isdisjoint(disks):
        return ()
    target = weight_target(observation, interference, settings)
    if not target:
        return ()
    return (_setting(interference, settings, Strength.INVISIBLE, Knob.IO_WEIGHT, at=target, value="default 1"),)


def _io_limit(
    observation: Observation, interference: Interference, settings: ResponseSettings, bytes_per_second: float
) -> tuple[Intent, ...]:
    """Limit reads and writes to this rate each, on each disk that both used."""
    limit = max(int(bytes_per_second), settings.io_floor_bytes_per_second)
    disks = interference.disks or observation.disks_between(interference.culprit, interference.victim)
    if not disks:
        return ()
    text = "\n".join(f"{disk} rbps={limit} wbps={limit}" for disk in disks)
    return (_setting(interference, settings, Strength.HARD, Knob.IO_MAX, at=interference.culprit, value=text),)


def _bytes_moved(observation: Observation, interference: Interference) -> float:
    row = observation.rows.get(interference.culprit)
    return float(observation.io_bytes_per_second[row]) if row is not None else 0.0


def _fewest_bytes(_observation: Observation, _interference: Interference, settings: ResponseSettings) -> float:
    return float(settings.io_floor_bytes_per_second)


def start_limit(
    observation: Observation, interference: Interference, settings: ResponseSettings, steering: Steering
) -> LimitState | None:
    """Return the first limit on a culprit; None where it uses too little to be limited."""
    ceiling = steering.ceiling(observation, interference)
    floor = steering.floor(observation, interference, settings)
    if ceiling <= floor:
        return None
    over = loss_over_budget(observation, [interference], settings)
    return first_limit(ceiling, over, floor, steering.deepest_cut)


def _steered(steering: Steering) -> Build:
    def build(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        first = start_limit(observation, interference, settings, steering)
        return () if first is None else steering.set_limit(observation, interference, settings, first.limit)

    return build


def loss_over_budget(
    observation: Observation, interferences: Iterable[Interference], settings: ResponseSettings
) -> float:
    """Return the worst victim's claim over its budget.

    On disks the budget is a share of the time that its IO takes undisturbed, and the claim is on those that disturb it;
    where that time is not measured the budget is the general one, and it is never less than a tenth of that.
    """
    worst = 0.0
    for each in interferences:
        if each.resource != "blockio":
            may = loss_budget(observation, each.victim, each.resource, settings)
            claim = observation.claim_on(each.victim, each.culprit, each.resource, of_limits=True)
            worst = max(worst, claim / may)
            continue
        row = observation.rows.get(each.victim)
        may = settings.loss_budget_seconds_per_second
        if row is not None and observation.io_service is not None:
            may = max(float(observation.io_service[row]) * settings.io_slowdown, may / 10)
        worst = max(worst, observation.claim(each.victim, "blockio") / may)
    return worst


def loss_budget(observation: Observation, victim: str, resource: str, settings: ResponseSettings) -> float:
    """Return what a victim may lose, in seconds per second: of CPU time a share of its progress, at least a little."""
    row = observation.rows.get(victim)
    progress = observation.used_by(victim) if row is not None and resource == "cpu" else 0.0
    return max(settings.loss_budget_seconds_per_second, settings.loss_budget_ratio * progress)


def _traffic_class(
    _observation: Observation, interference: Interference, settings: ResponseSettings
) -> tuple[Intent, ...]:
    return (
        _setting(interference, settings, Strength.MILD, Knob.NET_CLASS, at=interference.culprit, value=_LOW_TRAFFIC),
    )


def _cache_part(percent: int) -> Build:
    def build(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        text = schemata(observation.capabilities.caches, percent)
        if not text:
            return ()
        group = f"koord-squeezed-{percent}"
        return (
            _setting(interference, settings, Strength.MILD, Knob.RESCTRL_SCHEMATA, at=group, value=text),
            _setting(interference, settings, Strength.MILD, Knob.RESCTRL_GROUP, at=interference.culprit, value=group),
        )

    return build


def schemata(caches: CacheCapabilities, percent: int) -> str:
    """Return the lines of a resource group with this share of each cache and of the memory bandwidth; "" with neither.

    The lowest contiguous bits, at least as many as the hardware asks for; bandwidth rounded up to its granularity
    (Documentation/filesystems/resctrl.rst).
    """
    lines = []
    for name, domains, mask, least in (
        ("L3", caches.l3_domains, caches.l3_mask, caches.l3_least_bits),
        ("L2", caches.l2_domains, caches.l2_mask, caches.l2_least_bits),
    ):
        if domains:
            bits = max(mask.bit_count() * percent // 100, least, 1)
            lowest = mask & -mask
            part = (lowest << bits) - lowest
            lines.append(f"{name}:" + ";".join(f"{domain}={part:x}" for domain in domains))
    if caches.bandwidth_domains:
        step = caches.bandwidth_step
        amount = max(-(-percent // step) * step, caches.bandwidth_least)
        if caches.bandwidth_is_absolute:
            amount = max(BANDWIDTH_EIGHTHS_GB * percent // 100, 1)
        lines.append("MB:" + ";".join(f"{domain}={amount}" for domain in caches.bandwidth_domains))
    return "\n".join(lines)


def _without_idle(build: Build) -> Build:
    """Build only on kernels without cpu.idle, which does the same and better."""

    def instead(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        return () if Knob.CPU_IDLE in observation.capabilities.knobs else build(observation, interference, settings)

    return instead


_IDLE = Rung("idle", Strength.INVISIBLE, Knob.CPU_IDLE, _fixed(Knob.CPU_IDLE, "1", Strength.INVISIBLE), yields=True)
_WEIGHT = Rung(
    "weight",
    Strength.INVISIBLE,
    Knob.CPU_WEIGHT,
    _without_idle(_fixed(Knob.CPU_WEIGHT, "1", Strength.INVISIBLE)),
    yields=True,
)
_BVT = Rung(
    "bvt",
    Strength.INVISIBLE,
    Knob.CPU_BVT,
    _without_idle(_fixed(Knob.CPU_BVT, "-1", Strength.INVISIBLE)),
    yields=True,
)
_EVICT = Rung("evict", Strength.DRASTIC, None, _evict, one_shot=True)
_SQUEEZES = (
    Rung("squeeze-50", Strength.MILD, Knob.RESCTRL_GROUP, _cache_part(50)),
    Rung("squeeze-20", Strength.MILD, Knob.RESCTRL_GROUP, _cache_part(20)),
    Rung("squeeze-10", Strength.MILD, Knob.RESCTRL_GROUP, _cache_part(10)),
    _EVICT,
)

_CPUSET = Steering(_cpu_count, _fewest_cpus, _cores_used, _fewer_cpus, edge_growth=1.002, deepest_cut=0.5)
_QUOTA = Steering(_cores_used, _fewest_cores, _cores_used, _cpu_quota, edge_growth=1.002, deepest_cut=0.5)
_IO_MAX = Steering(
    _bytes_moved, _fewest_bytes, _bytes_moved, _io_limit, edge_growth=1.05, deepest_cut=0.1, searches_ceiling=True
)

_MOST_BYSTANDERS = 32
"""Cgroups, by their use, whose CPUs are read before `cpuset`."""

LADDERS: Mapping[str, tuple[Rung, ...]] = {
    "cpu": (
        _IDLE,
        _WEIGHT,
        _BVT,
        Rung("burst", Strength.INVISIBLE, Knob.CPU_BURST, _burst, relieves_victim=True),
        Rung("separate", Strength.MILD, Knob.CPUSET_CPUS, _separate_cpus),
        Rung("cpuset", Strength.MILD, Knob.CPUSET_CPUS, _steered(_CPUSET), steering=_CPUSET),
        Rung("quota", Strength.HARD, Knob.CPU_MAX, _steered(_QUOTA), steering=_QUOTA),
        Rung("freeze", Strength.DRASTIC, Knob.FREEZE, _freeze, temporary=True),
        _EVICT,
    ),
    "memory": (
        Rung("reclaim", Strength.MILD, None, _reclaim, one_shot=True),
        Rung("high", Strength.HARD, Knob.MEMORY_HIGH, _memory_high, outlasts_lift=True),
        _EVICT,
    ),
    "blockio": (
        Rung("weight", Strength.INVISIBLE, Knob.IO_WEIGHT, _io_weight, yields=True),
        Rung("limit", Strength.HARD, Knob.IO_MAX, _steered(_IO_MAX), steering=_IO_MAX),
        _EVICT,
    ),
    "network": (Rung("class", Strength.MILD, Knob.NET_CLASS, _traffic_class), _EVICT),
    "cache": _SQUEEZES,
    "memory_bandwidth": _SQUEEZES,
}
"""Resource of a verdict to its rungs, mildest first."""


def cgroup_reads(observation: Observation, settings: ResponseSettings) -> CgroupReads:
    """Return the cgroups whose CPUs (for `cpuset`) or quota (for `burst`) a rung may need before the next tick.

    CPUs are needed only of pairs that the rung may answer: on a host that has cpusets, of a latency-sensitive victim
    and of culprits with a share that counts; then also of the busiest others, which may be bound to some. A trip
    between two ticks may name any latency-sensitive victim, so the quotas of all that are throttled are included. Their
    CPUs are not: the fast path applies invisible rungs only, and `cpuset` is none.
    """
    verdicts = [verdict for verdict in observation.verdicts if verdict.resource == "cpu"]
    victims = {verdict.victim for verdict in verdicts}
    has_cpuset = Knob.CPUSET_CPUS in observation.capabilities.knobs and settings.max_strength >= Strength.MILD
    cpus: set[str] = set()
    for verdict in verdicts if has_cpuset else ():
        shares = {culprit.path for culprit in verdict.culprits if culprit.share >= settings.min_culprit_share}
        culprits = {path for path in shares if path.startswith("/")}
        if culprits and observation.rank(verdict.victim) >= SENSITIVE_RANK:
            cpus |= {verdict.victim, *culprits}
    if cpus:
        busiest = np.argsort(-np.nan_to_num(observation.cpu_cores), kind="stable")[:_MOST_BYSTANDERS]
        cpus |= {observation.cgroups[row].path for row in busiest.tolist() if observation.cpu_cores[row] > 0}
    throttled = np.flatnonzero(observation.throttled > settings.loss_budget_seconds_per_second).tolist()
    return CgroupReads(
        cpus=frozenset(cpus),
        quota=frozenset(
            info.path
            for info in (observation.cgroups[row] for row in throttled)
            if info.path in victims or (settings.fast_path and QoSClass(info.qos).latency_sensitive)
        ),
    )
