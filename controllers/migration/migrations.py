"""The controller of PodMigrationJobs: arbitration, then each job's next step as writes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from api.crds.placement import PodMigrationJob, Reservation
from api.kube.objects import Pod
from api.kube.times import duration_seconds, epoch_seconds, rfc3339
from api.placement import MAX_PODS, PlacementRequest, SimulatedPod
from api.protocol import ANNOTATION_RESERVATION_ALLOCATED
from cluster.events import Event
from cluster.rate_limit import TokenBucket
from cluster.resources import Key, Resource
from controllers.descheduler.cluster_view import (
    ANNOTATION_CREATED_BY,
    ANNOTATION_NODE,
    ANNOTATION_PASSED,
    ANNOTATION_TRIGGER,
    ANNOTATION_WORKLOAD,
    ENDED,
    Cluster,
)
from controllers.descheduler.eviction_filter import EvictionFilter
from controllers.descheduler.kinds import MIGRATION, POD, RESERVATION, WORKLOADS, WorkloadObject, with_workloads
from controllers.migration import progress
from controllers.migration.arbitration import Choice, arbitrate
from controllers.migration.progress import Action, Facts, Step
from controllers.migration.reservations import reservation_name, reservation_of
from controllers.migration.settings import MigrationArgs
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import View
from controllers.runtime.writes import Move, Standing, Verb, Write, Writes, create, delete, kind_name, patch, reference

LABEL_POLICY = "koordinator.sh/evict-policy"
MANUAL = "manual"
"""Stands for the plugin where no plugin of the descheduler made the job."""
ANNOTATION_SOFT = "scheduling.koordinator.sh/soft-eviction"


class Migrations(Controller[ControllerSettings]):
    """Moves pods. It remembers the rate of evictions and nothing else."""

    period_seconds: ClassVar[float] = 3.0

    def __init__(
        self, args: MigrationArgs, identity: str, workloads: Sequence[Resource[WorkloadObject]] = WORKLOADS
    ) -> None:
        super().__init__(ControllerSettings(), Key("", ""))
        self.workloads = workloads
        self.args = args
        self.identity = identity
        self._evictions = TokenBucket(args.evict_qps, args.evict_burst)

    @property
    def watches(self) -> tuple[Resource[Any], ...]:  # type: ignore[override]
        """Jobs, and all that decides whether a pod may be moved."""
        return with_workloads(self.workloads)

    def plan(self, view: View, now: float) -> Writes:
        """Return the next step of each job."""
        jobs = view.objects(MIGRATION)
        if not jobs:
            return Writes()
        cluster = Cluster(view, self.workloads)
        writes: list[Write] = []
        waiting: list[PodMigrationJob] = []
        for _, job in sorted(jobs.items()):
            creator = job.metadata.annotations.get(ANNOTATION_CREATED_BY, self.identity)
            if creator != self.identity:
                continue
            if job.status.phase in ENDED:
                writes += self._scavenge(cluster, job, now)
            elif job.spec.paused:
                continue
            elif job.status.phase == "Running":
                step = progress.running(job, self._facts(cluster, job), now)
                writes += self._carry_out(cluster, job, step, now) if step else []
            else:
                step = progress.pending(job, Facts(cluster.pod_of(job)), now)
                if step is not None:
                    writes += self._carry_out(cluster, job, step, now)
                elif progress.waits_for_approval(job):
                    writes += _told(job, "WaitForApproval", f"annotate it {progress.ANNOTATION_APPROVED}=true")
                else:
                    waiting.append(job)
        for choice in arbitrate(cluster, waiting, self.args):
            writes += self._chosen(cluster, choice, now)
        return Writes(writes)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return where a job stands, and whether a pod may be moved."""
        cluster = Cluster(view, self.workloads)
        if kind == kind_name(POD) and key in cluster.pods:
            refusal = EvictionFilter(cluster, self.args).refusal(cluster.pods[key])
            return [f"not moved: {refusal.reason}" if refusal else "may be moved"]
        job = view.objects(MIGRATION).get(key)
        if kind != kind_name(MIGRATION) or job is None:
            return ()
        lines = [f"phase {job.status.phase or 'Pending'} {job.status.status} {job.status.message}".rstrip()]
        return lines + [
            f"{each.type} {each.status} {each.reason} {each.message}".rstrip() for each in job.status.conditions
        ]

    # Internals

    def _facts(self, cluster: Cluster, job: PodMigrationJob) -> Facts:
        pod = cluster.pod_of(job)
        reservation = cluster.reservations.get(Key("", reservation_name(job)))
        node = cluster.nodes.get(Key("", reservation.status.node_name)) if reservation is not None else None
        successor = _successor(cluster, job, reservation, pod)
        if pod is None:
            return Facts(pod, reservation, node, successor)
        checks = EvictionFilter(cluster, self.args)
        refusal = checks.permanent(pod)
        unrest = checks.unrest(pod, cluster.passed - {pod.metadata.uid})
        return Facts(pod, reservation, node, successor, refusal.reason if refusal else "", unrest)

    def _chosen(self, cluster: Cluster, choice: Choice, now: float) -> list[Write]:
        job = choice.job
        if choice.ended:
            return self._carry_out(cluster, job, progress.failed(job, "ForbiddenMigratePod", choice.refusal, now), now)
        if choice.refusal:
            return _told(job, "WaitForArbitration", choice.refusal)
        annotations = {ANNOTATION_PASSED: "true"}
        pod = cluster.pod_of(job)
        if pod is not None:
            # Limits count the move while the pod is gone and its successor not ready, whatever made the job.
            annotations[ANNOTATION_NODE] = pod.spec.node_name
            workload = cluster.workload(pod)
            if workload is not None:
                annotations[ANNOTATION_WORKLOAD] = workload.uid
        note = patch(MIGRATION, job, {"metadata": {"annotations": annotations}}, "it passed the arbitration")
        return [note, *self._carry_out(cluster, job, progress.started(job, now), now)]

    def _carry_out(self, cluster: Cluster, job: PodMigrationJob, step: Step, now: float) -> list[Write]:
        writes: list[Write] = []
        if step.reservation:
            options: dict[str, Any] = {"reservationRef": {"kind": "Reservation", "name": step.reservation}}
            writes.append(
                patch(MIGRATION, job, {"spec": {"reservationOptions": options}}, f"it uses {step.reservation}")
            )
        if step.status != job.status:
            kind = "Warning" if step.status.phase == "Failed" else "Normal"
            reason = step.status.reason if kind == "Warning" else step.status.status or "Started"
            event = Event(reference(MIGRATION, job), reason, step.note, "Migrate", kind, _target(job))
            body = {"status": _changes(job, step)}
            writes.append(patch(MIGRATION, job, body, step.note, subresource="status", event=event))
        pod = cluster.pod_of(job)
        if step.action is Action.RESERVE and pod is not None:
            template = msgspec.to_builtins(pod)
            wanted = reservation_of(job, template, now)
            fallback = self._status(
                job, progress.failed(job, "FailedCreateReservation", "the API server refuses it", now)
            )
            made = create(RESERVATION, wanted, f"a place for the successor of {pod.key}")
            writes.append(replace(made, instead=fallback))
        elif step.action is Action.EVICT and pod is not None:
            writes += self._evict(cluster, job, pod, now)
        elif step.action is Action.FREE and not step.only_if_pod_stands:
            writes += _free(cluster, job)
        if step.only_if_pod_stands and pod is not None:
            # Each kind is listed by itself: the new owner of the place can be seen before the end of the old pod.
            # The place goes in the plan that sees the failure stored: an ask of its own could be answered otherwise.
            standing = Standing(POD, Key(pod.metadata.namespace, pod.metadata.name), pod.metadata.uid)
            return [replace(each, standing=standing) for each in writes]
        return writes

    def _status(self, job: PodMigrationJob, step: Step) -> Write:
        return patch(MIGRATION, job, {"status": _changes(job, step)}, step.note, subresource="status")

    def _evict(self, cluster: Cluster, job: PodMigrationJob, pod: Pod, now: float) -> list[Write]:
        if not self._evictions.try_take(now):
            return []
        stated, labels = self.args.eviction_policy, (pod.metadata.labels, job.metadata.labels)
        policy = next((each[LABEL_POLICY] for each in labels if each.get(LABEL_POLICY)), stated)
        options = job.spec.delete_options
        grace = options.grace_period_seconds if options else None
        key = Key(pod.metadata.namespace, pod.metadata.name)
        why = f"migration {job.metadata.name}"
        event = Event(reference(POD, pod), "Descheduled", why, "Evict", related=reference(MIGRATION, job))
        if policy == "SoftEviction":
            if ANNOTATION_SOFT in pod.metadata.annotations:
                return []
            text = msgspec.json.encode({"timestamp": rfc3339(now), "initiator": why, "reason": job.status.message})
            soft = patch(POD, pod, {"metadata": {"annotations": {ANNOTATION_SOFT: text.decode()}}}, why, event=event)
            forbidden = progress.failed(job, "ForbiddenEvict", "the account may not annotate pods", now)
            return [replace(soft, instead=self._status(job, forbidden))]
        question = _question(cluster, pod) if progress.mode_of(job) == "EvictDirectly" else None
        uid = pod.metadata.uid
        move = Move(job.metadata.annotations.get(ANNOTATION_TRIGGER, MANUAL), pod.spec.node_name)
        evict = Write(
            Verb.EVICT, POD, key, None, why, uid=uid, event=event, question=question, grace_seconds=grace, moves=move
        )
        if policy != "Delete" or stated != "Delete":
            # A deletion heeds no disruption budget: a label alone, which a pod's author may set, does not choose it.
            return [evict]
        return [replace(evict, verb=Verb.DELETE, instead=evict)]

    def _scavenge(self, cluster: Cluster, job: PodMigrationJob, now: float) -> list[Write]:
        created, ttl = epoch_seconds(job.metadata.creation_timestamp), duration_seconds(job.spec.ttl or "")
        stays = ttl + self.args.scavenge_seconds if ttl else 6 * self.args.scavenge_seconds
        if progress.has_moved(job):
            # Limits and fairness of workloads are counted from the jobs that are kept.
            stays = max(stays, self.args.remembered_seconds)
        if created is None or now < created + stays:
            # A failure whose reservation could not be deleted at once.
            return _free(cluster, job) if job.status.phase == "Failed" and not progress.evicting(job) else []
        return [delete(MIGRATION, job, "it ended a while ago")]


def _question(cluster: Cluster, pod: Pod) -> PlacementRequest:
    """Ask for a place beside all pods that are on their way without one."""
    others = sorted(
        uid
        for uid, each in cluster.moving.items()
        if uid != pod.metadata.uid and progress.mode_of(each) == "EvictDirectly" and progress.evicting(each)
    )
    asked = [*others[: MAX_PODS - 1], pod.metadata.uid]
    known = cluster.pods_by_uid
    pods = [SimulatedPod(uid=uid, excluded_nodes=[known[uid].spec.node_name]) for uid in asked]
    if pod.status.phase == "Failed":
        pods[-1] = SimulatedPod(pod=pod, excluded_nodes=[pod.spec.node_name])
    return PlacementRequest(pods=pods)


def _successor(cluster: Cluster, job: PodMigrationJob, reservation: Reservation | None, old: Pod | None) -> Pod | None:
    """Return the pod that uses the place: the one noted before, an owner, or one whose annotation names the place.

    An ended reservation may have lost its owners; the annotation stays with the pod.
    """
    noted = job.status.pod_ref.uid if job.status.pod_ref else ""
    if noted in cluster.pods_by_uid:
        return cluster.pods_by_uid[noted]
    if reservation is None:
        return None
    found = [cluster.pods_by_uid.get(each.uid) for each in reservation.status.current_owners]
    found += [
        pod
        for pod in cluster.pods_by_node.get(reservation.status.node_name, ())
        if _drawn_from(pod) == reservation.metadata.uid
    ]
    pending = old is not None and not old.spec.node_name
    return next(
        (pod for pod in found if pod and (old is None or pod.metadata.uid != old.metadata.uid or pending)), None
    )


def _drawn_from(pod: Pod) -> str:
    """Return the uid of the reservation that a pod uses, empty for none."""
    text = pod.metadata.annotations.get(ANNOTATION_RESERVATION_ALLOCATED)
    if not text:
        return ""
    try:
        return msgspec.json.decode(text, type=_Allocated).uid
    except (msgspec.DecodeError, RecursionError):
        return ""


class _Allocated(msgspec.Struct):
    uid: str = ""


def _free(cluster: Cluster, job: PodMigrationJob) -> list[Write]:
    """Delete the reservation that was made for a job, unless a pod uses it."""
    found = cluster.reservations.get(Key("", job.metadata.uid))
    ours = found is not None and found.metadata.labels.get(progress.LABEL_CREATED_BY) == progress.CREATED_BY
    if found is None or not ours or found.status.current_owners or found.metadata.deletion_timestamp:
        return []
    return [delete(RESERVATION, found, f"migration {job.metadata.name} ended without a move")]


def _told(job: PodMigrationJob, status: str, message: str) -> list[Write]:
    """State why a job waits, where that is new."""
    if job.status.status == status and job.status.message == message:
        return []
    body = {"status": {"phase": "Pending", "status": status, "message": message}}
    event = Event(reference(MIGRATION, job), status, message, "Migrate", related=_target(job))
    return [patch(MIGRATION, job, body, message, subresource="status", event=event)]


def _target(job: PodMigrationJob) -> Any:
    return job.spec.pod_ref if job.spec.pod_ref.name else None


def _changes(job: PodMigrationJob, step: Step) -> Mapping[str, Any]:
    """Return the status as a merge patch: what a default leaves out is removed."""
    before, after = (msgspec.to_builtins(each) for each in (job.status, step.status))
    return {**{name: None for name in before if name not in after}, **after}
