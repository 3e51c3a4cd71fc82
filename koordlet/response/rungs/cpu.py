"""Rungs for CPU time."""

import math

from api.cgroup_path import is_within
from api.cpuset import format_cpuset
from api.intents import Intent, Knob, Strength
from api.kube.cpu_burst import is_busy
from api.qos import PROTECTED_RANK
from koordlet.response.observation import PERIOD_US, Observation
from koordlet.response.rungs.eviction import EVICT
from koordlet.response.rungs.limits import steered
from koordlet.response.rungs.rung import Build, Interference, Rung, Steering, fixed, setting
from koordlet.response.settings import ResponseSettings


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
    return (setting(interference, settings, Strength.MILD, Knob.CPUSET_CPUS, at=interference.culprit, value=value),)


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
    return (setting(interference, settings, Strength.HARD, Knob.CPU_MAX, at=interference.culprit, value=text),)


def _cores_used(observation: Observation, interference: Interference) -> float:
    return observation.used_by(interference.culprit)


def _fewest_cores(observation: Observation, interference: Interference, settings: ResponseSettings) -> float:
    """Return what is left when the victim's allowance is taken."""
    used = observation.used_by(interference.culprit)
    return max(used - interference.allowance_cores, settings.quota_floor_millicores / 1000)


def _burst(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    """Let a throttled victim exceed its quota by what it saved before, up to as much again.

    The kubelet gives a pod the sum of its containers' quotas, so a container's burst ends at its pod's quota unless
    that may be exceeded, too. Nothing for one that uses more than half of its quota: it saves little, and needs a
    larger one.
    Mainline kernels take no burst above the quota (kernel/sched/core.c, tg_set_cfs_bandwidth).
    """
    row = observation.rows.get(interference.victim)
    if row is None or observation.throttled[row] <= settings.loss_budget_seconds_per_second:
        return ()
    if observation.rank(interference.victim) >= PROTECTED_RANK:
        return ()
    quotas = observation.capabilities.cgroup_quota_us
    own_us = quotas.get(interference.victim)
    if own_us is None or is_busy(observation.used_by(interference.victim), own_us / PERIOD_US):
        return ()
    return tuple(
        setting(interference, settings, Strength.INVISIBLE, Knob.CPU_BURST, at=path, value=str(quota_us))
        for path in observation.up_to_pod(interference.victim)
        if (quota_us := quotas.get(path)) is not None
    )


def _freeze(_observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
    return (setting(interference, settings, Strength.DRASTIC, Knob.FREEZE, at=interference.culprit, value="1"),)


def _without_idle(build: Build) -> Build:
    """Build only on kernels without cpu.idle, which does the same and better."""

    def instead(observation: Observation, interference: Interference, settings: ResponseSettings) -> tuple[Intent, ...]:
        return () if Knob.CPU_IDLE in observation.capabilities.knobs else build(observation, interference, settings)

    return instead


_IDLE = Rung("idle", Strength.INVISIBLE, Knob.CPU_IDLE, fixed(Knob.CPU_IDLE, "1", Strength.INVISIBLE), yields=True)
_WEIGHT = Rung(
    "weight",
    Strength.INVISIBLE,
    Knob.CPU_WEIGHT,
    _without_idle(fixed(Knob.CPU_WEIGHT, "1", Strength.INVISIBLE)),
    yields=True,
)
_BVT = Rung(
    "bvt",
    Strength.INVISIBLE,
    Knob.CPU_BVT,
    _without_idle(fixed(Knob.CPU_BVT, "-1", Strength.INVISIBLE)),
    yields=True,
)
_CPUSET = Steering(_cpu_count, _fewest_cpus, _cores_used, _fewer_cpus, edge_growth=1.002, deepest_cut=0.5)
_QUOTA = Steering(_cores_used, _fewest_cores, _cores_used, _cpu_quota, edge_growth=1.002, deepest_cut=0.5)

RUNGS = (
    _IDLE,
    _WEIGHT,
    _BVT,
    Rung("burst", Strength.INVISIBLE, Knob.CPU_BURST, _burst, relieves_victim=True),
    Rung("separate", Strength.MILD, Knob.CPUSET_CPUS, _separate_cpus),
    Rung("cpuset", Strength.MILD, Knob.CPUSET_CPUS, steered(_CPUSET), steering=_CPUSET),
    Rung("quota", Strength.HARD, Knob.CPU_MAX, steered(_QUOTA), steering=_QUOTA),
    Rung("freeze", Strength.DRASTIC, Knob.FREEZE, _freeze, temporary=True),
    EVICT,
)
