"""Requests of pods and containers as columns, for the response."""

from collections.abc import Sequence

import numpy as np

from api.frame import CgroupInfo, CgroupKind
from api.kube.resources import CPU, MEMORY
from koordlet.identity.pods import FactsOf, PodFacts, no_pod_facts
from koordlet.response.observation import Floats


class PodRequests:
    """Columns of requests, kept for each cgroup as long as the facts of its pod are the same."""

    def __init__(self, facts_of: FactsOf) -> None:
        self._facts_of = facts_of
        self._known: dict[int, tuple[PodFacts, float, float]] = {}
        """Facts, cores and bytes by cgroup."""

    def columns(self, cgroups: Sequence[CgroupInfo]) -> tuple[Floats, Floats] | None:
        """Return the CPU (cores) and memory (bytes) requests of each cgroup, NaN without one; None without facts."""
        if self._facts_of is no_pod_facts:
            return None
        cores, memory = np.full(len(cgroups), np.nan), np.full(len(cgroups), np.nan)
        before, self._known = self._known, {}
        for row, info in enumerate(cgroups):
            facts = self._facts_of(info.pod_uid) if info.pod_uid else None
            if facts is None or not facts.spec_known:
                continue
            known = before.get(info.id)
            if known is None or known[0] is not facts:
                amounts = _amounts(info, facts)
                known = (facts, amounts.get(CPU, 0) / 1000 or np.nan, amounts.get(MEMORY, 0) or np.nan)
            self._known[info.id] = known
            _, cores[row], memory[row] = known
        return cores, memory


def _amounts(info: CgroupInfo, facts: PodFacts) -> dict[str, int]:
    if info.kind is CgroupKind.POD:
        return dict(facts.requests)
    found = next((one for one in facts.containers if info.container_id and one.id == info.container_id), None)
    return {} if found is None else dict(found.requests)
