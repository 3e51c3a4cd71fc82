"""Reservation: room for pods to come, held by a stand-in pod, given to its owners, ended in time.

`scheduler.reservation` has the rules. The stand-in is scheduled and charged like any pod; what its consumers
take is charged with them and therefore given back on the row, so no amount counts twice. With `spec.preAllocation` a
stand-in may go where placed pods hold the room: it takes them as consumers, and has their room as they end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Node, Pod
from api.kube.resources import PODS, format_resources
from api.protocol import (
    ANNOTATION_PRE_ALLOCATABLE_PRIORITY,
    ANNOTATION_RESERVATION_ALLOCATED,
    LABEL_PRE_ALLOCATABLE,
)
from cluster.resources import Key, merge_patch
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.explain.diagnosis import sentence
from scheduler.framework import (
    Action,
    Attempt,
    Bits,
    Failure,
    Handle,
    Nomination,
    ObjectEvent,
    Plugin,
    Reason,
    Restored,
    Route,
    Scores,
    Verb,
    Write,
    scaled,
)
from scheduler.reservation.capacity import (
    ORDER_SCORE,
    conflicting_policies,
    nominate,
    score,
    shortfall,
)
from scheduler.reservation.ledger import RESERVATIONS, ReservationLedger, ReservationUse
from scheduler.reservation.lifecycle import GC_SECONDS, ReservationChange, bound, unschedulable
from scheduler.reservation.matching import AffinityError, Seeker, refusal, seeker_of
from scheduler.reservation.operating_pod import operates
from scheduler.reservation.pre_allocation import PRE_ALLOCATED_PODS
from scheduler.reservation.taking import REASONS, Taking, free_amounts
from scheduler.reservation.value import Reservation

NO_MATCH, TOO_SMALL, CONFLICT = 1, 2, 4


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of Reservation."""

    scheduler_names: list[str] = msgspec.field(default_factory=lambda: ["", "koord-scheduler"])
    """Reservations whose template names one of these schedulers are ours."""
    gc_seconds: float = GC_SECONDS
    """Ended reservations are deleted after this long."""
    disable_garbage_collection: bool = False
    """Keep ended reservations."""
    pre_allocation_cluster_mode: bool = False
    """Serve reservations whose `spec.preAllocationPolicy.mode` is Cluster: they take pods that a label marks."""
    pre_allocatable_label: str = LABEL_PRE_ALLOCATABLE
    """Label that marks these pods, with the value `true`."""
    pre_allocatable_priority_annotation: str = ANNOTATION_PRE_ALLOCATABLE_PRIORITY
    """Annotation with the whole number by which they are taken, the highest first."""
    prefer_no_pre_allocated_pods: bool = False
    """Take no pod where the node has room without, unless the reservation must take one."""


@dataclass(slots=True, eq=False)
class ReservationClassSpec:
    """A class of pods that look for reservations, or one stand-in."""

    seeker: Seeker | None = None
    error: str = ""
    stands_in: bool = False
    offered: dict[Row, frozenset[str]] = field(default_factory=dict)
    """Reservations that the last attempt was offered, by row: rows that differ are evaluated again."""
    known: "Offers | None" = None
    """Offers of the last attempt, as long as they hold."""
    matched: dict[str, tuple[Reservation, Mapping[str, str], bool]] = field(default_factory=dict)
    """By UID, whether a reservation is for the class, with the value and node labels that this was found for."""


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Reservations for a class of pods; good while nothing about reservations changes and none ends."""

    generation: int
    ends: float
    by_row: dict[Row, list[ReservationUse]]


class ReservationPlugin(Plugin[ReservationClassSpec]):
    """Schedules reservations and gives them to their owners."""

    name = "Reservation"
    rank = 300
    weight = 5000
    requeue_on = frozenset(
        {
            "reservations/add",
            "reservations/update",
            "reservations/delete",
            "pods/add",
            "pods/update",
            "pods/delete",
            "nodes/add",
        }
    )
    watches = (RESERVATIONS,)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        gc_seconds = None if config.disable_garbage_collection else config.gc_seconds
        self.ledger = ReservationLedger(handle, config.scheduler_names, gc_seconds)
        self._taking = Taking(
            self.ledger,
            cluster_mode=config.pre_allocation_cluster_mode,
            label=config.pre_allocatable_label,
            priority_annotation=config.pre_allocatable_priority_annotation,
            prefer_none=config.prefer_no_pre_allocated_pods,
        )

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """Reservations may have waited for the node to show."""
        self.ledger.node_changed(node)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A stand-in takes its room, a consumer uses some, or a pod acts as a reservation."""
        unused = not self.ledger.in_use
        self.ledger.pod_added(row, info)
        if unused and self.ledger.in_use:
            self.handle.invalidate()

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """The reverse."""
        self.ledger.pod_removed(info)

    def pod_finished(self, pod: Pod) -> None:
        """A pod that was taken counts no more."""
        self.ledger.pod_ended(pod.metadata.uid)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod that was taken counts no more."""
        self.ledger.pod_ended(pod.metadata.uid)

    def on_object(self, event: ObjectEvent) -> None:
        """A reservation appeared, changed or went."""
        unused = not self.ledger.in_use
        if event.action is Action.DELETE:
            self.ledger.drop(event.key.name)
        else:
            self.ledger.take(event.after)
        if unused and self.ledger.in_use:
            self.handle.invalidate()

    def leads(self) -> None:
        """State everything anew."""
        self.ledger.restate()

    def tick(self, now: float) -> Iterable[Write]:
        """Follow every reservation, write what changed, delete what ended long ago."""
        self.ledger.now = now
        self.ledger.place_known()
        self.handle.activate(self._taking.unfinished())
        return list(self.ledger.writes())

    def queue_hint(self, info: PodInfo, event: ObjectEvent) -> bool:
        """Of placed pods, those that act as reservations matter to others, and those to take to a stand-in."""
        pod = event.after
        if not isinstance(pod, Pod):
            return True
        return self._taking.concerns(info, pod) if info.stand_in else operates(pod)

    # One attempt

    def prepare(self, info: PodInfo) -> ReservationClassSpec | None:
        """Decode what the pod says about reservations; None while there are none and it wants none."""
        if info.stand_in:
            return ReservationClassSpec(stands_in=True)
        try:
            seeker = seeker_of(info.pod, info.requests)
        except AffinityError as error:
            return ReservationClassSpec(error=str(error))
        return ReservationClassSpec(seeker) if self.ledger.in_use or seeker.affinity is not None else None

    def pre_filter(self, attempt: Attempt, spec: ReservationClassSpec) -> Reason | None:
        """Refuse what cannot be read, and pods that must have a reservation where none is for them."""
        self.ledger.place_known()
        if spec.error:
            return Reason(spec.error, resolvable=False)
        if spec.stands_in:
            return self._taking.problem(attempt.pod)
        if spec.seeker is None or spec.seeker.affinity is None or self._offers(attempt, spec):
            return None
        return Reason(self._why_none(attempt, spec.seeker), resolvable=False)

    def restore(self, attempt: Attempt, spec: ReservationClassSpec) -> Mapping[Row, Sequence[Restored]]:
        """The reservations that are for the pod; for a stand-in, the placed pods that it may take."""
        shares: dict[Row, list[Restored]]
        if spec.stands_in:
            shares = self._taking.candidates(attempt)
        else:
            offers = self._offers(attempt, spec)
            shares = {row: [self._restored(each) for each in listed] for row, listed in offers.items()}
        now_offered = {row: frozenset(each.holder.uid for each in listed) for row, listed in shares.items()}
        for row in now_offered.keys() | spec.offered.keys():
            if now_offered.get(row) != spec.offered.get(row):
                attempt.snapshot.touch(row)
        spec.offered = now_offered
        return shares

    def reasons(self, spec: ReservationClassSpec) -> tuple[Reason, ...]:
        """Meaning of the filter's bits."""
        if spec.stands_in:
            return REASONS
        return (
            Reason("node(s) without a reservation for the pod", resolvable=False),
            Reason("Reservation(s) with too little left and too little free beside it"),
            Reason("Reservation(s) of the default policy beside others", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: ReservationClassSpec, rows: Rows) -> Bits | None:
        """With an affinity only nodes with a fitting reservation will do; else the plain node does as well."""
        if spec.stands_in:
            return self._taking.filter(attempt, rows)
        if spec.seeker is None or spec.seeker.ignores:
            return None
        must = spec.seeker.affinity is not None
        if not must and not attempt.restored:
            return None
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        bits = np.full(numbers.shape[0], NO_MATCH if must else 0, dtype=np.int64)
        for position in np.flatnonzero(np.isin(numbers, list(attempt.restored))).tolist():
            row = int(numbers[position])
            listed = self._listed(attempt, row)
            if conflicting_policies([reservation.value for reservation in listed]):
                bits[position] = CONFLICT
            else:
                usable = self._fitting(attempt, row) or (not must and self._fits_plainly(attempt, row))
                bits[position] = 0 if usable else TOO_SMALL
        return bits

    def post_filter(self, attempt: Attempt, spec: ReservationClassSpec, failure: Failure) -> Nomination | None:
        """A reservation that finds no node says so in its status."""
        reservation = self.ledger.reservations.get(attempt.pod.uid) if spec.stands_in else None
        if reservation is not None:
            self.ledger.change(reservation, unschedulable(reservation.value, sentence(failure, attempt.snapshot)))
            self._taking.failed(attempt.pod)
        return None

    def score(self, attempt: Attempt, spec: ReservationClassSpec, rows: Rows) -> Scores | None:
        """Utilisation of the best reservation of a node with the pod in it; of a stand-in, by the pods it takes."""
        if spec.stands_in:
            return self._taking.score(attempt, rows)
        if not attempt.restored or spec.seeker is None or spec.seeker.ignores:
            return None
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        scores = np.zeros(numbers.shape[0], dtype=np.int64)
        for position in np.flatnonzero(np.isin(numbers, list(attempt.restored))).tolist():
            fitting = self._fitting(attempt, int(numbers[position]))
            scores[position] = max(
                (score(attempt.pod.requests, reservation.current) for reservation in fitting), default=0
            )
        return scores

    def normalize(
        self, attempt: Attempt, spec: ReservationClassSpec, scores: Scores, feasible: NDArray[np.bool_]
    ) -> Scores:
        """The node with the lowest order comes first; otherwise relative to the best."""
        if spec.stands_in:
            return scores
        if spec.seeker is None or spec.seeker.ignores:
            return scaled(scores, feasible)
        ordered = [
            (reservation.value.order, row)
            for row in attempt.restored
            if feasible[row]
            for reservation in self._fitting(attempt, row)
            if reservation.value.order > 0
        ]
        if ordered:
            scores = scores.copy()
            scores[min(ordered)[1]] = ORDER_SCORE
        return scaled(scores, feasible)

    def reserve(self, attempt: Attempt, spec: ReservationClassSpec, row: Row) -> Reason | None:
        """Nominate the reservation, and let the plugins after this one draw from no other; choose the pods to take."""
        if spec.stands_in:
            return self._taking.reserve(attempt, row)
        if spec.seeker is None or spec.seeker.ignores or row not in attempt.restored:
            attempt.restored = {}
            return None
        candidates = {reservation.value.uid: reservation for reservation in self._fitting(attempt, row)}
        chosen = nominate(attempt.pod.requests, [reservation.current for reservation in candidates.values()])
        if chosen is None:
            attempt.restored = {}
            return Reason("Reservation(s) gone", plugin=self.name) if spec.seeker.affinity is not None else None
        attempt.restored = {row: [each for each in attempt.restored[row] if each.holder.uid == chosen.uid]}
        body = msgspec.json.encode({"name": chosen.name, "uid": chosen.uid}).decode()
        attempt.pod.patch[ANNOTATION_RESERVATION_ALLOCATED] = body
        return None

    def bind(self, attempt: Attempt, spec: ReservationClassSpec, row: Row) -> Sequence[Write] | None:
        """A stand-in is bound by making its reservation available."""
        reservation = self.ledger.reservations.get(attempt.pod.uid) if spec.stands_in else None
        if reservation is None:
            return None
        key = Key("", reservation.value.name)
        change = self._bound(reservation, attempt, row)
        writes = [
            Write(
                Verb.PATCH_STATUS, RESERVATIONS, key, merge_patch({"status": self.ledger.status(reservation, change)})
            )
        ]
        decided = {name: text for name, text in attempt.pod.patch.items() if name != PRE_ALLOCATED_PODS}
        if decided:
            patch = {"metadata": {"annotations": decided}}
            writes.insert(0, Write(Verb.PATCH, RESERVATIONS, key, merge_patch(patch)))
        return writes

    def post_bind(self, attempt: Attempt, spec: ReservationClassSpec, row: Row) -> Iterable[Write]:
        """The reservation is available."""
        reservation = self.ledger.reservations.get(attempt.pod.uid) if spec.stands_in else None
        if reservation is not None and not reservation.value.phase.terminal:
            self.ledger.change(reservation, self._bound(reservation, attempt, row))
        return ()

    # Diagnosis

    def routes(self) -> Mapping[str, Route]:
        """Reservations of a node."""
        return {"nodeReservations/{name}": self.describe}

    def describe(self, name: str) -> dict[str, Any]:
        """Reservations on a node with their consumers and what is left."""
        listed = [
            reservation.current for reservation in self.ledger.reservations.values() if reservation.value.node == name
        ]
        return {
            value.name: {
                "phase": value.phase.value,
                "allocatable": format_resources(value.allocatable),
                "allocated": format_resources(value.allocated),
                "remaining": format_resources(value.remaining),
                "owners": sorted(value.consumers),
            }
            for value in listed
        }

    # Internals: attempts

    def _offers(self, attempt: Attempt, spec: ReservationClassSpec) -> dict[Row, list[ReservationUse]]:
        """Usable reservations that match the pod, by row."""
        if spec.seeker is None:
            return {}
        known = spec.known
        if known is None or known.generation != self.ledger.generation or attempt.now >= known.ends:
            known = self._matching(attempt, spec, replace(spec.seeker, pod=attempt.pod.pod))
            if not self.ledger.by_identity and not self.ledger.operating:
                spec.known = known
        return known.by_row

    def _matching(self, attempt: Attempt, spec: ReservationClassSpec, seeker: Seeker) -> Offers:
        offers: dict[Row, list[ReservationUse]] = {}
        ends = inf
        for reservation in self.ledger.reservations.values():
            if reservation.row is None or not reservation.usable(attempt.now):
                continue
            if reservation.operating and seeker.ignores:
                continue
            end = reservation.value.end_seconds
            ends = ends if end is None else min(ends, end)
            labels = attempt.snapshot.labels.of(reservation.row)
            if self._is_for(reservation, labels, spec=spec, seeker=seeker):
                offers.setdefault(reservation.row, []).append(reservation)
        return Offers(self.ledger.generation, ends, offers)

    def _is_for(
        self, reservation: ReservationUse, labels: Mapping[str, str], *, spec: ReservationClassSpec, seeker: Seeker
    ) -> bool:
        """Return whether the reservation matches the pod; remembered for the class where its members cannot differ."""
        known = spec.matched.get(reservation.value.uid)
        if known is not None and known[0] is reservation.value and known[1] is labels:
            return known[2]
        matches = refusal(seeker, reservation.value, labels) is None
        if reservation.value.uid not in self.ledger.by_identity:
            spec.matched[reservation.value.uid] = (reservation.value, labels, matches)
        return matches

    def _why_none(self, attempt: Attempt, seeker: Seeker) -> str:
        seeker = replace(seeker, pod=attempt.pod.pod)
        reasons: Counter[str] = Counter()
        for reservation in self.ledger.reservations.values():
            labels = attempt.snapshot.labels.of(reservation.row) if reservation.row is not None else {}
            why = None if reservation.usable(attempt.now) else "it is not available or used up"
            reasons[why or refusal(seeker, reservation.value, labels) or "its node is gone"] += 1
        counted = ", ".join(f"{count} {text}" for text, count in sorted(reasons.items()))
        return f"Reservation(s) needed, none matches: {counted or 'there is none'}"

    def _restored(self, reservation: ReservationUse) -> Restored:
        snapshot = self.handle.snapshot
        left = {name: amount - reservation.returned.get(name, 0) for name, amount in reservation.info.requests.items()}
        if reservation.operating:
            left.pop(PODS, None)  # the pod runs on: its place among the node's pods stays taken
        columns = {snapshot.resource_column(name): max(amount, 0) for name, amount in left.items()}
        vector = np.zeros(snapshot.width, dtype=np.int64)
        for column, amount in columns.items():
            vector[column] = amount
        return Restored(reservation.info, vector)

    def _listed(self, attempt: Attempt, row: Row) -> list[ReservationUse]:
        return [
            self.ledger.reservations[each.holder.uid]
            for each in attempt.restored.get(row, ())
            if each.holder.uid in self.ledger.reservations
        ]

    def _fitting(self, attempt: Attempt, row: Row) -> list[ReservationUse]:
        """Reservations of the row that take the pod, by the policy of each."""
        free = free_amounts(attempt, row)
        request = attempt.pod.requests
        return [
            reservation
            for reservation in self._listed(attempt, row)
            if shortfall(request, free, reservation.current) is None
        ]

    def _fits_plainly(self, attempt: Attempt, row: Row) -> bool:
        free = free_amounts(attempt, row)
        return all(amount <= free[name] for name, amount in attempt.pod.requests.items() if amount > 0)

    def _bound(self, reservation: ReservationUse, attempt: Attempt, row: Row) -> ReservationChange:
        """The reservation once its stand-in is bound, with the pods that it took."""
        change = bound(reservation.value, attempt.snapshot.names[row])
        return replace(change, reservation=reservation.counted(change.reservation))
