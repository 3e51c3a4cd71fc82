"""DefaultPreemption: less important pods make room where no node has any, within disruption budgets if possible."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.times import rfc3339
from api.protocol import LABEL_PREEMPTION_POLICY
from cluster.resources import PODS, Key, strategic_patch
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Failure, Handle, Nomination, Plugin, Reason, Verb, Write
from scheduler.preemption import (
    BUDGETS,
    PreemptionCandidate,
    any_less_important,
    gang_victims,
    least_harmful,
    may_go,
    victims_on,
)

PREEMPTED = "PreemptionByScheduler"
"""Reason of the condition DisruptionTarget on victims."""


@runtime_checkable
class Together(Protocol):
    """Pods that are placed together or not at all, as the gang plugin knows them."""

    def together(self, info: PodInfo) -> Sequence[PodInfo]:
        """The pending pods that the group still needs, the pod itself first; empty without a group."""


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
        self._next = 0

    def post_filter(self, attempt: Attempt, spec: tuple[()], failure: Failure) -> Nomination | None:
        """Name a node and its victims; without candidates, say why per node count."""
        info, snapshot = attempt.pod, attempt.snapshot
        if failure.reason is not None and not failure.reason.resolvable:
            return None
        if _never(info):
            return Nomination("", message="preemption: not eligible due to preemptionPolicy=Never.")
        promise = self.handle.promise(info.uid)
        if promise is not None and not _hopeless(failure, promise[0]) and self._leaving(*promise, info):
            node = snapshot.names[promise[0]]
            return Nomination(node, message="preemption: not eligible due to terminating victims.")
        peer = self.handle.peers().get("Coscheduling")
        together = peer.together(info) if isinstance(peer, Together) else ()
        if len(together) > 1:
            return self._for_all(attempt, together)
        found = self.candidates(attempt, failure)
        if not found:
            return Nomination("", message=_nobody(attempt, failure))
        chosen = least_harmful(found)
        return self._nomination(attempt, chosen)

    def start_at(self, offset: int) -> None:
        """Look at the node of this number first, of those that are not hopeless; each attempt goes on from the last."""
        self._next = offset

    def candidates(self, attempt: Attempt, failure: Failure) -> list[PreemptionCandidate]:
        """Nodes with their victims, as many as the settings ask for, and on until one breaks no budget."""
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
        start, self._next = self._next, self._next + enough
        avoided = self.handle.avoided(attempt, rows)
        return self._among(rows[~avoided], attempt, enough, start) or self._among(rows[avoided], attempt, enough, start)

    def _among(self, rows: NDArray[np.intp], attempt: Attempt, enough: int, start: int) -> list[PreemptionCandidate]:
        budgets = tuple(self.handle.objects(BUDGETS).values())
        found: list[PreemptionCandidate] = []
        violating = 0
        for index in range(rows.size):
            row = int(rows[(start + index) % rows.size])
            candidate = victims_on(attempt, row, budgets, fits=self.handle.fits, may_go=may_go)
            if candidate is None or (candidate.violations and violating >= enough):
                continue
            found.append(candidate)
            violating += bool(candidate.violations)
            if len(found) >= enough and violating < len(found):
                break
        return found

    def _for_all(self, attempt: Attempt, together: Sequence[PodInfo]) -> Nomination:
        """Victims for a whole gang, or none at all."""
        attempts = [Attempt(info, attempt.snapshot, attempt.now, simulated=True) for info in together]
        budgets = tuple(self.handle.objects(BUDGETS).values())
        handle, found = self.handle, None
        if any_less_important(attempt.snapshot, together):
            found = gang_victims(attempts, budgets, best_row=handle.best_row, fits=handle.fits, may_go=may_go)
        if found is None or not found[1]:
            return Nomination("", message="preemption: the gang does not fit even without less important pods.")
        rows, victims = found
        names = attempt.snapshot.names
        message = f"preemption: {len(victims)} victim(s) make room for the gang."
        others = tuple((info, names[row]) for info, row in zip(together[1:], rows[1:], strict=True))
        return Nomination(names[rows[0]], victims, self._removals(attempt, victims), message, others)

    def _nomination(self, attempt: Attempt, chosen: PreemptionCandidate) -> Nomination:
        node = attempt.snapshot.names[chosen.row]
        message = f"preemption: {len(chosen.victims)} victim(s) on {node} make room."
        return Nomination(node, chosen.victims, self._removals(attempt, chosen.victims), message)

    def _removals(self, attempt: Attempt, victims: Iterable[PodInfo]) -> tuple[Write, ...]:
        waiting = self.handle.waiting()
        writes: list[Write] = []
        for victim in victims:
            if victim.uid in waiting:
                self.handle.reject(victim.uid, Reason("preempted", plugin=self.name))
            else:
                writes.extend(_removal(victim, attempt))
        return tuple(writes)

    def _leaving(self, row: Row, victims: frozenset[str], info: PodInfo) -> bool:
        """Return whether victims of the pod have yet to leave the row's node.

        Victims that another process chose are known by the condition that preemption leaves on them.
        """
        placed = self.handle.snapshot.pods
        if victims:
            return any(uid in placed for uid in victims)
        residents = self.handle.snapshot.residents[row].values()
        return any(resident.priority < info.priority and _preempted(resident) for resident in residents)


def _never(info: PodInfo) -> bool:
    policy = info.labels.get(LABEL_PREEMPTION_POLICY, info.pod.spec.preemption_policy)
    return policy == "Never"


def _preempted(info: PodInfo) -> bool:
    """Return whether the pod is leaving because a scheduler removed it."""
    return bool(info.pod.metadata.deletion_timestamp) and any(
        condition.type == "DisruptionTarget" and condition.status == "True" and condition.reason == PREEMPTED
        for condition in info.pod.status.conditions
    )


def _hopeless(failure: Failure, row: Row) -> bool:
    """Return whether the row has become one where removing pods cannot help."""
    bits = int(failure.bits[row]) if row < failure.bits.shape[0] else 0
    return any(bits >> index & 1 and not reason.resolvable for index, reason in enumerate(failure.reasons))


def _removal(victim: PodInfo, attempt: Attempt) -> Sequence[Write]:
    """Say on the victim why it goes, then delete it."""
    key = Key(victim.namespace, victim.pod.metadata.name)
    condition: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": PREEMPTED,
        "message": f"{attempt.pod.pod.spec.scheduler_name}: preempting to accommodate a higher priority pod",
        "lastTransitionTime": rfc3339(attempt.now),
    }
    if victim.pod.metadata.generation:
        condition["observedGeneration"] = victim.pod.metadata.generation
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
