"""Ladders of rungs by resource, from invisible to drastic; and what must be read of cgroups before they are tried."""

from collections.abc import Mapping

import numpy as np

from api.intents import Knob, Strength
from api.qos import SENSITIVE_RANK, QoSClass
from koordlet.response.host_capabilities import CgroupReads
from koordlet.response.observation import Observation
from koordlet.response.rungs import blockio, cache, cpu, memory, network
from koordlet.response.rungs.rung import Rung
from koordlet.response.settings import ResponseSettings

_MOST_BYSTANDERS = 32
"""Cgroups, by their use, whose CPUs are read before `cpuset`."""

LADDERS: Mapping[str, tuple[Rung, ...]] = {
    "cpu": cpu.RUNGS,
    "memory": memory.RUNGS,
    "blockio": blockio.RUNGS,
    "network": network.RUNGS,
    "cache": cache.RUNGS,
    "memory_bandwidth": cache.RUNGS,
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
    rows = np.flatnonzero(observation.throttled > settings.loss_budget_seconds_per_second).tolist()
    throttled = [
        info.path
        for info in (observation.cgroups[row] for row in rows)
        if info.path in victims or (settings.fast_path and QoSClass(info.qos).latency_sensitive)
    ]
    return CgroupReads(
        cpus=frozenset(cpus),
        quota=frozenset(each for path in throttled for each in observation.up_to_pod(path)),
    )
