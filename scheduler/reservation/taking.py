"""Attempts of stand-ins that may take placed pods (`spec.preAllocation`): which pods, on which rows."""

import numpy as np

from api.kube.objects import Pod
from api.kube.resources import Resources
from api.protocol import ANNOTATION_RESERVATION_AFFINITY
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.framework import Attempt, Bits, Reason, Restored, Scores
from scheduler.reservation.capacity import asks_amounts_alone
from scheduler.reservation.ledger import ReservationLedger
from scheduler.reservation.matching import owner_matches
from scheduler.reservation.pre_allocation import (
    MAX_SCORE,
    PRE_ALLOCATED_PODS,
    Candidate,
    pods_to_take,
    priority_of,
    takeable,
    taker,
    worth,
)
from scheduler.reservation.value import Policy, PreAllocation, Reservation

MAX_ROWS = 256
"""Rows with pods to take that one attempt works out; the next goes on with the others."""

ROWS_AT_ONCE = 512
"""Rows that are looked through for pods to take at once."""
CHOSEN = "Reservation.taking"
"""In the memo of an attempt: the pods to take on rows that were worked out."""

NO_POD, NOT_ENOUGH = 1, 2
REASONS = (
    Reason("node(s) without a pod that the reservation can take", resolvable=False),
    Reason("node(s) where pods to take and what is free do not make up the reservation"),
)
"""Meaning of the bits."""


class Taking:
    """The Reservation plugin's answers for stand-ins. `label` and `priority_annotation` are those of the mode Cluster;
    `prefer_none` takes no pod where the node has room without.
    """

    def __init__(
        self,
        ledger: ReservationLedger,
        *,
        cluster_mode: bool,
        label: str,
        priority_annotation: str,
        prefer_none: bool,
    ) -> None:
        self._ledger = ledger
        self._cluster_mode = cluster_mode
        self._label = label
        self._priority_annotation = priority_annotation
        self._prefer_none = prefer_none
        self._searched: dict[str, Row] = {}
        """Last row that attempts of a stand-in worked out, by its UID, as long as there are others."""
        self._failed: set[str] = set()
        """Stand-ins that found no node among the rows worked out so far."""

    def problem(self, info: PodInfo) -> Reason | None:
        """Return why the reservation cannot be placed as its pre-allocation says; None when it can."""
        use = self._ledger.reservations.get(info.uid)
        how = use.value.pre_allocation if use is not None else None
        if use is None or how is None:
            return None
        if use.value.policy is not Policy.RESTRICTED:
            return Reason("spec.preAllocation needs spec.allocatePolicy Restricted", resolvable=False)
        if how.cluster and not self._cluster_mode:
            text = "spec.preAllocationPolicy.mode Cluster is off (pre_allocation_cluster_mode of Reservation)"
            return Reason(text, resolvable=False)
        if how.required and not asks_amounts_alone(info.requests, info.labels):
            return Reason("devices and CPUs of their own are not taken from running pods", resolvable=False)
        return None

    def concerns(self, info: PodInfo, pod: Pod) -> bool:
        """Return whether a pod that was placed or changed may be one for the stand-in to take."""
        taking = self._of(info)
        if taking is None:
            return False
        value, how = taking
        if how.cluster:
            return pod.metadata.labels.get(self._label) == "true"
        return any(owner_matches(owner, pod) for owner in value.owners)

    def candidates(self, attempt: Attempt) -> dict[Row, list[Restored]]:
        """Placed pods that the stand-in may take, by row, with their shares: a part of the rows, if there are many."""
        taking = self._of(attempt.pod)
        if taking is None:
            return {}
        uid, wanted = attempt.pod.uid, taker(taking[0])
        alike: dict[PodClass, bool] | None = None if wanted.uid in self._ledger.by_identity else {}
        last = self._searched.pop(uid, -1)
        found = self._takeable(attempt, wanted, range(last + 1, attempt.snapshot.rows_used), alike=alike)
        if not found and last >= 0:
            found = self._takeable(attempt, wanted, range(last + 1), alike=alike)
        rows = list(found)
        if len(rows) > MAX_ROWS:
            self._searched[uid] = rows[MAX_ROWS - 1]
        vector = attempt.snapshot.vector
        return {row: [Restored(info, vector(info)) for info in found[row]] for row in rows[:MAX_ROWS]}

    def _takeable(
        self, attempt: Attempt, wanted: Reservation, rows: range, *, alike: dict[PodClass, bool] | None
    ) -> dict[Row, list[PodInfo]]:
        """Pods to take on rows that have room without them, ascending: one row more than an attempt works out."""
        snapshot, asked = attempt.snapshot, attempt.snapshot.vector(attempt.pod)
        found: dict[Row, list[PodInfo]] = {}
        for first in range(rows.start, rows.stop, ROWS_AT_ONCE):
            part = slice(first, min(first + ROWS_AT_ONCE, rows.stop))
            there: dict[Row, list[PodInfo]] = {}
            free = snapshot.allocatable[part] - snapshot.requested[part] - asked
            for row in range(part.start, part.stop):
                for info in snapshot.residents[row].values():
                    if alike is not None and alike.get(info.cls) is False:
                        continue
                    taken = info.stand_in or self._ledger.draws(info.uid)
                    if not taken and self._may_take(attempt, wanted, row, info=info, alike=alike):
                        there.setdefault(row, []).append(info)
                        free[row - first] += snapshot.vector(info)
            possible = ((free >= 0) | (asked == 0)).all(axis=1) & snapshot.live[part]
            found |= {row: infos for row, infos in there.items() if possible[row - first]}
            if len(found) > MAX_ROWS:
                break
        return found

    def failed(self, info: PodInfo) -> None:
        """The stand-in found no node; where rows are left, it goes on with them."""
        if info.uid in self._searched:
            self._failed.add(info.uid)

    def unfinished(self) -> list[str]:
        """Stand-ins that are to go on, by UID; each is told once."""
        told = [uid for uid in self._failed if uid in self._ledger.reservations]
        self._searched = {uid: row for uid, row in self._searched.items() if uid in self._ledger.reservations}
        self._failed.clear()
        return told

    def filter(self, attempt: Attempt, rows: Rows) -> Bits | None:
        """Rows with pods to take are worked out; others are for NodeResourcesFit, unless a pod must be taken."""
        taking = self._of(attempt.pod)
        if taking is None or not (attempt.restored or taking[1].required):
            return None
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        bits = np.full(numbers.shape[0], NO_POD if taking[1].required else 0, dtype=np.int64)
        for position in np.flatnonzero(np.isin(numbers, list(attempt.restored))).tolist():
            bits[position] = 0 if self._chosen(attempt, int(numbers[position])) is not None else NOT_ENOUGH
        return bits

    def score(self, attempt: Attempt, rows: Rows) -> Scores | None:
        """Worth of the pods that the stand-in takes on each row."""
        taking = self._of(attempt.pod)
        if taking is None:
            return None
        value, how = taking
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        scores = np.full(numbers.shape[0], MAX_SCORE if how.multiple else 0, dtype=np.int64)
        for position in np.flatnonzero(np.isin(numbers, list(attempt.restored))).tolist():
            scores[position] = worth(value, self._chosen(attempt, int(numbers[position])) or ())
        return scores

    def reserve(self, attempt: Attempt, row: Row) -> Reason | None:
        """Note the pods to take with the stand-in; the ledger takes them with its place."""
        self._searched.pop(attempt.pod.uid, None)
        taken = self._chosen(attempt, row) if row in attempt.restored else ()
        attempt.restored = {}
        if taken is None:
            return Reason("Pod(s) to take gone", plugin="Reservation")
        if taken:
            attempt.pod.patch[PRE_ALLOCATED_PODS] = ",".join(each.uid for each in taken)
        return None

    # Internals

    def _of(self, info: PodInfo) -> tuple[Reservation, PreAllocation] | None:
        """The reservation of a stand-in that may take pods, and how; None for others."""
        use = self._ledger.reservations.get(info.uid)
        if use is None or use.value.pre_allocation is None or not asks_amounts_alone(info.requests, info.labels):
            return None
        return use.value, use.value.pre_allocation

    def _may_take(
        self, attempt: Attempt, wanted: Reservation, row: Row, *, info: PodInfo, alike: dict[PodClass, bool] | None
    ) -> bool:
        """Return whether the pod may be taken; asked once a class where neither node nor identity matter."""
        if alike is not None and info.cls in alike:
            return alike[info.cls]
        answer = takeable(info.pod, info.requests, wanted, attempt.snapshot.labels.of(row), self._label)
        if alike is not None and ANNOTATION_RESERVATION_AFFINITY not in info.pod.metadata.annotations:
            alike[info.cls] = answer
        return answer

    def _chosen(self, attempt: Attempt, row: Row) -> tuple[Candidate, ...] | None:
        """The pods that the stand-in takes on a row with pods to take; None where it does not fit."""
        taking = self._of(attempt.pod)
        if taking is None:
            return ()
        # Filter, score and reserve ask in turn; a trial that changes the row between them asks anew.
        known: dict[Row, tuple[int, tuple[Candidate, ...] | None]] = attempt.memo.setdefault(CHOSEN, {})
        generation = attempt.snapshot.generation
        if row not in known or known[row][0] != generation:
            candidates = [self._candidate(each.holder) for each in attempt.restored.get(row, ())]
            request, free = attempt.pod.requests, free_amounts(attempt, row)
            taken = pods_to_take(request, taking[0], candidates, free, prefer_none=self._prefer_none)
            known[row] = generation, taken
        return known[row][1]

    def _candidate(self, info: PodInfo) -> Candidate:
        text = info.pod.metadata.annotations.get(self._priority_annotation, "")
        return Candidate(info.uid, info.requests, priority_of(text))


def free_amounts(attempt: Attempt, row: Row) -> Resources:
    """Amounts that the row has left beside everything reserved, for the resources that the pod asks for."""
    snapshot = attempt.snapshot
    columns = {name: snapshot.resource_column(name) for name in attempt.pod.requests}
    return {
        name: int(snapshot.allocatable[row, column] - snapshot.requested[row, column])
        for name, column in columns.items()
    }
