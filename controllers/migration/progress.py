"""Progress of one PodMigrationJob: from its state and what became of its pod and reservation to the next step.

One step at a time, each decided from what is seen, so that a process that died between two of them loses nothing: a
reservation is made before its use is noted, and the wish to evict is noted before the eviction is asked for.
"""

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from api.crds.placement import PodMigrationJob, PodMigrationJobStatus, Reservation
from api.kube.meta import Condition, ObjectReference
from api.kube.objects import Node, Pod
from api.kube.times import duration_seconds, epoch_seconds, rfc3339
from controllers.descheduler.cluster_view import ANNOTATION_APPROVAL, is_ready, node_ready

ANNOTATION_APPROVED = "descheduler.koordinator.sh/approved"
LABEL_CREATED_BY = "app.kubernetes.io/created-by"
CREATED_BY = "koordinator-pod-migrate-job-controller"


class Action(StrEnum):
    """What is to be done besides the new status."""

    NOTHING = ""
    RESERVE = "reserve"
    EVICT = "evict"
    FREE = "free"
    """Delete the reservation: no pod will use it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen around a job."""

    pod: Pod | None
    """The pod that is to move; None when it is gone."""
    reservation: Reservation | None = None
    node: Node | None = None
    """The node of the reservation."""
    successor: Pod | None = None
    """The pod that uses the reservation."""
    forbidden: str = ""
    """Why the pod may not be moved as it is now."""
    unrest: str = ""
    """Why its workload had better lose no pod just now."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next status, what to do beside it, and what to tell."""

    status: PodMigrationJobStatus
    action: Action = Action.NOTHING
    note: str = ""
    reservation: str = ""
    """Name of the reservation to note in the spec."""
    only_if_pod_stands: bool = False
    """Right only where the pod that was seen is still there: its eviction was asked for."""


@dataclass
class _Draft:
    """A status under change."""

    status: PodMigrationJobStatus
    now: float
    conditions: dict[str, Condition] = field(init=False)

    def __post_init__(self) -> None:
        self.conditions = {each.type: each for each in self.status.conditions}

    def put(self, kind: str, reason: str, message: str = "", *, true: bool) -> None:
        before = self.conditions.get(kind)
        status = "True" if true else "False"
        if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
            return
        stamp = rfc3339(self.now)
        moved = stamp if before is None or before.status != status else before.last_transition_time
        self.conditions[kind] = Condition(
            type=kind, status=status, reason=reason, message=message, last_probe_time=stamp, last_transition_time=moved
        )

    def done(self, **changes: object) -> PodMigrationJobStatus:
        return msgspec.structs.replace(self.status, conditions=list(self.conditions.values()), **changes)


def mode_of(job: PodMigrationJob) -> str:
    """Return the mode; ReservationFirst by default."""
    return job.spec.mode or "ReservationFirst"


def condition(job: PodMigrationJob, kind: str) -> Condition | None:
    """Return a condition of a job."""
    return next((each for each in job.status.conditions if each.type == kind), None)


def evicting(job: PodMigrationJob) -> bool:
    """Return whether the eviction was, or may have been, asked for."""
    found = condition(job, "Eviction")
    return found is not None and found.reason in ("Evicting", "EvictComplete")


def has_moved(job: PodMigrationJob) -> bool:
    """Return whether a job's pod went, or may have gone."""
    return job.status.phase == "Succeeded" or evicting(job)


def waits_for_approval(job: PodMigrationJob) -> bool:
    """Return whether a person has to approve the job first."""
    notes = job.metadata.annotations
    return notes.get(ANNOTATION_APPROVAL) == "required" and notes.get(ANNOTATION_APPROVED) != "true"


def end_seconds(job: PodMigrationJob) -> float | None:
    """Return when a job is given up; None for never."""
    ttl, created = duration_seconds(job.spec.ttl or ""), epoch_seconds(job.metadata.creation_timestamp)
    return created + ttl if ttl and created is not None else None


def failed(job: PodMigrationJob, reason: str, message: str, now: float, *, free: bool = True) -> Step:
    """Return the end of a job without a move; the reservation goes unless a pod is on its way to it."""
    status = _Draft(job.status, now).done(phase="Failed", status="", reason=reason, message=message)
    return Step(status, Action.FREE if free and not evicting(job) else Action.NOTHING, f"{reason}: {message}")


def pending(job: PodMigrationJob, facts: Facts, now: float) -> Step | None:
    """Return the end of a job that did not start and cannot, or None."""
    end = end_seconds(job)
    if end is not None and now >= end:
        return failed(job, "Timeout", "it did not start in its time", now)
    if not job.spec.pod_ref.name or not job.spec.pod_ref.namespace:
        return failed(job, "InvalidPodRef", "spec.podRef needs namespace and name", now)
    if facts.pod is None:
        return failed(job, "MissingPod", "the pod is gone", now)
    return None


def started(job: PodMigrationJob, now: float) -> Step:
    """Return the start of a job that passed the arbitration."""
    return Step(_Draft(job.status, now).done(phase="Running", status="", reason="", message=""), note="started")


def running(job: PodMigrationJob, facts: Facts, now: float) -> Step | None:
    """Return the next step of a running job, or None to wait."""
    end = end_seconds(job)
    if end is not None and now >= end:
        return failed(job, "Timeout", "it did not end in its time", now)
    if facts.pod is None and not evicting(job):
        return failed(job, "MissingPod", "the pod went before it was evicted", now)
    if not evicting(job) and facts.forbidden:
        return failed(job, "ForbiddenMigratePod", facts.forbidden, now)
    if mode_of(job) == "EvictDirectly":
        return _evict(job, facts, now)
    return _reserve(job, facts, now) if condition(job, "ReservationScheduled") is None else _move(job, facts, now)


def _evict(job: PodMigrationJob, facts: Facts, now: float) -> Step | None:
    draft = _Draft(job.status, now)
    if facts.pod is None:
        draft.put("Eviction", "EvictComplete", true=True)
        return Step(draft.done(phase="Succeeded", status="Complete", reason="", message=""), note="the pod went")
    if facts.pod.metadata.deletion_timestamp and evicting(job):
        return None
    if facts.unrest:
        return _rests_not(job, facts, now)
    if not evicting(job):
        draft.put("Eviction", "Evicting", true=False)
        return Step(draft.done(status="Evicting", message=""), note="evicting")
    return Step(job.status, Action.EVICT, "evicting the pod")


def _reserve(job: PodMigrationJob, facts: Facts, now: float) -> Step | None:
    draft, reservation = _Draft(job.status, now), facts.reservation
    created = condition(job, "ReservationCreated")
    if reservation is None:
        if created is not None:
            return failed(job, "MissingReservation", "the reservation is gone", now)
        return Step(job.status, Action.RESERVE, "reserving a place")
    if created is None:
        draft.put("ReservationCreated", "", true=True)
        name = reservation.metadata.name
        return Step(draft.done(status="ReservationCreated"), note=f"reservation {name} made", reservation=name)
    state = reservation.status
    if state.phase == "Failed":
        return failed(job, "ReservationExpired", "the reservation ended unused", now)
    scheduled = next((each for each in state.conditions if each.type == "Scheduled"), None)
    if state.phase != "Available" and not state.current_owners and state.phase != "Succeeded":
        if scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable":
            draft.put("ReservationScheduled", "Unschedulable", scheduled.message, true=False)
            end = failed(job, "Unschedulable", scheduled.message or "no node takes the pod", now)
            return Step(
                _Draft(draft.done(), now).done(phase="Failed", reason="Unschedulable", message=end.status.message),
                end.action,
                end.note,
            )
        return None
    old = facts.pod
    if old is not None and old.spec.node_name and state.node_name == old.spec.node_name:
        return failed(job, "ForbiddenMigratePod", f"the place is on the pod's own node {state.node_name}", now)
    draft.put("ReservationScheduled", "", true=True)
    return Step(
        draft.done(status="ReservationScheduled", node_name=state.node_name), note=f"a place on node {state.node_name}"
    )


def _move(job: PodMigrationJob, facts: Facts, now: float) -> Step | None:
    draft, reservation, old = _Draft(job.status, now), facts.reservation, facts.pod
    if not evicting(job):
        refused = _place_lost(reservation, facts.node, old)
        if refused is not None:
            return failed(job, *refused, now)
        if old is not None and not old.spec.node_name:
            # A pending pod takes the place itself: nothing is to be evicted.
            return _arrive(job, draft, reservation, facts.successor)
        if facts.unrest:
            return _rests_not(job, facts, now)
        draft.put("Eviction", "Evicting", true=False)
        return Step(draft.done(status="Evicting", message=""), note="evicting")
    if old is not None:
        if old.metadata.deletion_timestamp:
            return None
        # The answer may have been lost, or a budget forbids it yet. The place must still be there.
        refused = _place_lost(reservation, facts.node, old)
        if refused is not None:
            status = _Draft(job.status, now)
            status.put("Eviction", "FailedEvict", refused[1], true=False)
            return Step(
                status.done(phase="Failed", status="", reason=refused[0], message=refused[1]),
                Action.FREE,
                refused[1],
                only_if_pod_stands=True,
            )
        if facts.unrest:
            return _rests_not(job, facts, now)
        return Step(job.status, Action.EVICT, "evicting the pod")
    complete = condition(job, "Eviction")
    if complete is not None and complete.reason != "EvictComplete":
        draft.put("Eviction", "EvictComplete", true=True)
        return Step(draft.done(status="EvictComplete"), note="the pod went")
    return _arrive(job, draft, reservation, facts.successor)


def _rests_not(job: PodMigrationJob, facts: Facts, now: float) -> Step | None:
    """Return the wait for a workload that is released, scaled or has pods NotReady since the job started."""
    return _if_new(job, _Draft(job.status, now).done(message=facts.unrest), f"waits: {facts.unrest}")


def _place_lost(reservation: Reservation | None, node: Node | None, old: Pod | None) -> tuple[str, str] | None:
    """Return why the reserved place is none any more, as reason and message."""
    if reservation is None:
        return "MissingReservation", "the reservation is gone"
    if reservation.status.phase == "Failed":
        return "ReservationExpired", "the reservation ended unused"
    others = [each for each in reservation.status.current_owners if old is None or each.uid != old.metadata.uid]
    if others or (reservation.status.phase == "Succeeded" and not reservation.status.current_owners):
        return "ForbiddenMigratePod", "another pod took the place"
    if node is None or not node_ready(node) or node.spec.unschedulable:
        return "ForbiddenMigratePod", f"node {reservation.status.node_name} of the place is not ready or cordoned"
    return None


def _arrive(job: PodMigrationJob, draft: _Draft, reservation: Reservation | None, successor: Pod | None) -> Step | None:
    if successor is None:
        if reservation is None or reservation.status.phase == "Failed":
            return failed(job, "MissingReservation", "the place went before the new pod came", draft.now)
        draft.put("PodBoundReservation", "WaitForPodBindReservation", true=False)
        return _if_new(job, draft.done(status="WaitForPodBindReservation"), "waiting for the new pod")
    new = ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=successor.metadata.namespace,
        name=successor.metadata.name,
        uid=successor.metadata.uid,
    )
    draft.put("PodBoundReservation", "", true=True)
    draft.put("PodScheduled", "", true=True)
    if not is_ready(successor):
        draft.put("BoundPodReady", "WaitForBoundPodReady", true=False)
        status = draft.done(status="WaitForBoundPodReady", pod_ref=new, node_name=successor.spec.node_name)
        return _if_new(job, status, f"{successor.key} is bound to {successor.spec.node_name}")
    draft.put("BoundPodReady", "", true=True)
    status = draft.done(
        phase="Succeeded", status="Complete", reason="", message="", pod_ref=new, node_name=successor.spec.node_name
    )
    return Step(status, note=f"{successor.key} serves on {successor.spec.node_name}")


def _if_new(job: PodMigrationJob, status: PodMigrationJobStatus, note: str) -> Step | None:
    return None if status == job.status else Step(status, note=note)
