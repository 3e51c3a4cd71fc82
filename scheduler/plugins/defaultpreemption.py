"""DefaultPreemption: less important pods make room where no node has any, within disruption budgets if possible."""

from collections.abc import Sequence
from typing import Any

import msgspec

from api.protocol import LABEL_PREEMPTION_POLICY, LABEL_QUOTA_PREEMPTIBLE
from cluster.resources import PODS, Key, strategic_patch
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Failure, Handle, Nomination, Plugin, Reason, Verb, Write
from scheduler.preemption import BUDGETS, PreemptionCandidate, least_harmful, victims_on


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of DefaultPreemption."""

    min_candidate_nodes_percentage: int = 10
    """Look at this share of the nodes at least, as far as there are candidates."""
    min_candidate_nodes_absolute: int = 100
    """Look at this many nodes at least, as far as there are candidates."""


class DefaultPreemption(Plugin[tuple[()]]):
    """Chooses victims on the node where that hurts least."""

    name = "DefaultPreemption"
    rank = 890
    watches = (BUDGETS,)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self._start = 0

    def post_filter(self, attempt: Attempt, spec: tuple[()], failure: Failure) -> Nomination | None:
        """Name a node and its victims; without candidates, say why per node count."""
        info, snapshot = attempt.pod, attempt.snapshot
        if failure.reason is not None and not failure.reason.resolvable:
            return None
        if _never(info):
            return Nomination("", message="preemption: not eligible due to preemptionPolicy=Never.")
        promised = info.pod.status.nominated_node_name
        row = snapshot.row(promised) if promised else None
        if row is not None and self._leaving(row, info):
            return Nomination(promised, message="preemption: not eligible due to terminating victims.")
        found = self._candidates(attempt, failure)
        if not found:
            return Nomination("", message=_nobody(attempt, failure))
        chosen = least_harmful(found)
        return self._nomination(attempt, chosen)

    def _candidates(self, attempt: Attempt, failure: Failure) -> list[PreemptionCandidate]:
        if failure.reason is not None:
            return []
        rows = failure.resolvable_rows(attempt.snapshot)
        if rows.size == 0:
            return []
        config: Config = self.config
        enough = max(
            attempt.snapshot.node_count * config.min_candidate_nodes_percentage // 100,
            config.min_candidate_nodes_absolute,
        )
        self._start = (self._start + enough) % rows.size
        budgets = tuple(self.handle.objects(BUDGETS).values())
        found: list[PreemptionCandidate] = []
        for index in range(rows.size):
            row = int(rows[(self._start + index) % rows.size])
            candidate = victims_on(attempt, row, budgets, fits=self.handle.fits, may_go=_may_go)
            if candidate is not None:
                found.append(candidate)
                if len(found) >= enough:
                    break
        return found

    def _nomination(self, attempt: Attempt, chosen: PreemptionCandidate) -> Nomination:
        node = attempt.snapshot.names[chosen.row]
        waiting = self.handle.waiting()
        writes: list[Write] = []
        for victim in chosen.victims:
            if victim.uid in waiting:
                self.handle.reject(victim.uid, Reason("preempted", plugin=self.name))
            else:
                writes.extend(_removal(victim, attempt.pod))
        message = f"preemption: {len(chosen.victims)} victim(s) on {node} make room."
        return Nomination(node, chosen.victims, tuple(writes), message)

    def _leaving(self, row: Row, info: PodInfo) -> bool:
        """Return whether less important pods of the row are on their way out already."""
        residents = self.handle.snapshot.residents[row].values()
        return any(
            resident.priority < info.priority and resident.pod.metadata.deletion_timestamp for resident in residents
        )


def _never(info: PodInfo) -> bool:
    policy = info.labels.get(LABEL_PREEMPTION_POLICY, info.pod.spec.preemption_policy)
    return policy == "Never"


def _may_go(info: PodInfo) -> bool:
    return info.labels.get(LABEL_QUOTA_PREEMPTIBLE) != "false"


def _removal(victim: PodInfo, preemptor: PodInfo) -> Sequence[Write]:
    """Say on the victim why it goes, then delete it."""
    key = Key(victim.namespace, victim.pod.metadata.name)
    condition: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": f"{preemptor.pod.spec.scheduler_name}: preempting to accommodate a higher priority pod",
    }
    return (
        Write(Verb.PATCH_STATUS, PODS, key, strategic_patch({"status": {"conditions": [condition]}})),
        Write(Verb.DELETE, PODS, key, victim.uid),
    )


def _nobody(attempt: Attempt, failure: Failure) -> str:
    """The stock scheduler's words for "preemption does not help"."""
    snapshot = attempt.snapshot
    total = snapshot.node_count
    helpless = total if failure.reason is not None else total - int(failure.resolvable_rows(snapshot).size)
    parts = []
    if total - helpless:
        parts.append(f"{total - helpless} No preemption victims found for incoming pod")
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    return f"preemption: 0/{total} nodes are available: {', '.join(parts)}."
