"""Requests of pods and containers as columns, for the response."""

from collections.abc import Sequence

import numpy as np

from api.frame import CgroupInfo, CgroupKind
from api.kube.resources import CPU, MEMORY
from koordlet.identity.pods import FactsOf, PodFacts, no_pod_facts
from koordlet.response.observation import Floats


def pod_requests(cgroups: Sequence[CgroupInfo], facts_of: FactsOf) -> tuple[Floats, Floats] | None:
    """Return the CPU (cores) and memory (bytes) requests of each cgroup, NaN without one; None without facts."""
    if facts_of is no_pod_facts:
        return None
    cores, memory = np.full(len(cgroups), np.nan), np.full(len(cgroups), np.nan)
    for row, info in enumerate(cgroups):
        facts = facts_of(info.pod_uid) if info.pod_uid else None
        if facts is None or not facts.spec_known:
            continue
        amounts = _amounts(info, facts)
        cores[row] = amounts.get(CPU, 0) / 1000 or np.nan
        memory[row] = amounts.get(MEMORY, 0) or np.nan
    return cores, memory


def _amounts(info: CgroupInfo, facts: PodFacts) -> dict[str, int]:
    if info.kind is CgroupKind.POD:
        return dict(facts.requests)
    found = next((one for one in facts.containers if info.container_id and one.id == info.container_id), None)
    return {} if found is None else dict(found.requests)
