"""The controller that runs plugins: in cycles, and those that are event-driven when a node changes. Creates jobs."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from api.crds.placement import JobDeleteOptions, PodMigrationJob, PodMigrationJobSpec
from api.kube.meta import ObjectMeta, ObjectReference
from api.kube.objects import Node
from api.kube.selectors import label_selector_matches
from api.kube.times import epoch_seconds
from api.placement import MAX_PODS, PlacementRequest, SimulatedPod
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.descheduler.cluster_view import (
    ANNOTATION_APPROVAL,
    ANNOTATION_CREATED_BY,
    ANNOTATION_NODE,
    ANNOTATION_TRIGGER,
    ANNOTATION_WORKLOAD,
    Cluster,
    node_ready,
)
from controllers.descheduler.configuration import BuiltProfile, DeschedulerConfiguration
from controllers.descheduler.eviction_filter import EvictionFilter, Refusal
from controllers.descheduler.kinds import MIGRATION, NODE, NODE_METRIC, POD, with_workloads
from controllers.descheduler.limits import Limits
from controllers.descheduler.plugin import AnyPlugin, Point, Session, Wanted
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import View
from controllers.runtime.writes import Write, Writes, create, patch, reference

log = logging.getLogger(__name__)

ANNOTATION_REASON = "descheduler.koordinator.sh/evict-reason"
UNPLACED = "unplaced"
"""Result of a creation for which the scheduler has no node, or does not answer."""
EVENT_SECONDS = 10.0
"""Least time between two runs of event-driven plugins."""


class Descheduler(Controller[ControllerSettings]):
    """Chooses pods. It alone among the controllers remembers: rounds of anomalies, and limits by time."""

    def __init__(
        self, configuration: DeschedulerConfiguration, profiles: Sequence[BuiltProfile], identity: str
    ) -> None:
        super().__init__(ControllerSettings(), Key("", ""))
        self.configuration = configuration
        self.profiles = profiles
        self.identity = identity
        self.refused: list[tuple[str, str, str]] = []
        """Plugin, pod and reason of the last cycle's refusals."""
        self.limited: Counter[tuple[str, str, str, str]] = Counter()
        """Pods that a limit of nodes or namespaces kept, by plugin, node, namespace and limit."""
        remembered = [each.migration.remembered_seconds for each in profiles]
        self._limits = Limits(configuration, max(remembered, default=0.0))
        self._asked: dict[str, str] = {}
        """Uids of pods by the jobs of the last cycle."""
        self._first = True
        self._cycle_seconds = float("-inf")
        self._event_seconds = float("-inf")

    @property
    def watches(self) -> tuple[Resource[Any], ...]:  # type: ignore[override]
        """All that plugins read."""
        return with_workloads(self.configuration.workloads)

    @property
    def period_seconds(self) -> float:  # type: ignore[override]
        """Interval of cycles."""
        return max(1.0, self.configuration.interval_seconds)

    def plan(self, view: View, now: float) -> Writes:
        """Return the jobs to create."""
        for key, result in view.unmade(MIGRATION).items():
            if key.name in self._asked:
                self._limits.give_back(self._asked.pop(key.name), now, unplaced=result == UNPLACED)
        if self.configuration.paused:
            return Writes()
        cycle = view.full
        if cycle:
            self._cycle_seconds = self._event_seconds = now
        elif (view.touched(NODE_METRIC) or view.touched(NODE)) and now - self._event_seconds >= EVENT_SECONDS:
            self._event_seconds = now
        else:
            return Writes()
        cluster = Cluster(view, self.configuration.workloads)
        ready = [node for node in cluster.nodes.values() if node_ready(node)]
        if len(ready) < 2:
            return Writes()
        if self._first:
            self._first = False
            self._limits.recall(
                (job.metadata.annotations.get(ANNOTATION_WORKLOAD, ""), epoch_seconds(job.metadata.creation_timestamp))
                for job in cluster.jobs.values()
            )
        if cycle:
            self._limits.begin()
            self._asked.clear()
            self.refused = []
        wanted: list[tuple[BuiltProfile, Wanted]] = []
        annotations: dict[str, Write] = {}
        for profile, plugin, session in self._sessions(cluster, ready, now):
            if not cycle and not plugin.event_driven:
                continue
            plugin.run(session)
            wanted += [(profile, each) for each in session.wanted]
            self.refused += [(plugin.name, pod.key, why) for pod, why in session.refused]
            if not (self.configuration.dry_run or profile.migration.dry_run):
                for each in session.annotated:
                    body = {"metadata": {"annotations": dict(each.annotations)}}
                    annotations[each.pod.metadata.uid] = patch(POD, each.pod, body, f"{plugin.name}: {each.reason}")
        made = self._writes(cluster, wanted, now)
        return Writes([*made.writes, *annotations.values()], made.warnings)

    def _sessions(
        self, cluster: Cluster, ready: Sequence[Node], now: float
    ) -> Iterator[tuple[BuiltProfile, AnyPlugin, Session]]:
        filters = [EvictionFilter(cluster, profile.filter_args) for profile in self.profiles]
        for chosen in filters:
            chosen.accepted = filters[0].accepted
        for point in Point:
            for profile, chosen in zip(self.profiles, filters, strict=True):
                for plugin in profile.plugins:
                    if plugin.point is not point or plugin.args.paused:
                        continue
                    selectors = [self.configuration.selector, profile.node_selector, plugin.args.node_selector]
                    nodes = [
                        node
                        for node in ready
                        if all(
                            label_selector_matches(each, node.metadata.labels) for each in selectors if each is not None
                        )
                    ]

                    def admit(wanted: Wanted, profile: BuiltProfile = profile) -> Refusal | None:
                        args, scheduler = profile.migration, wanted.pod.spec.scheduler_name
                        if args.default_job_mode == "ReservationFirst" and scheduler not in args.scheduler_names:
                            return Refusal(f"its scheduler {scheduler} knows no reservations")
                        refusal = self._limits.admit(wanted, cluster, profile.migration, now)
                        if refusal is not None and refusal.limit:
                            space, node = wanted.pod.metadata.namespace, wanted.pod.spec.node_name
                            self.limited[wanted.plugin, node, space, refusal.limit] += 1
                        return refusal

                    yield profile, plugin, Session(cluster, now, nodes, chosen, plugin.args, plugin.name, admit)

    def _writes(self, cluster: Cluster, wanted: Sequence[tuple[BuiltProfile, Wanted]], now: float) -> Writes:
        writes: list[Write] = []
        notes: list[Event] = []
        before: list[SimulatedPod] = []
        for profile, each in wanted:
            pod = each.pod
            if self.configuration.dry_run or each.dry_run or profile.migration.dry_run:
                note = f"{each.plugin} would move it from {pod.spec.node_name}: {each.reason}"
                notes.append(Event(reference(POD, pod), "WouldMigrate", note, "Deschedule"))
                continue
            excluded = sorted({pod.spec.node_name, *each.avoid})
            known = pod.status.phase != "Failed"
            asked = (
                SimulatedPod(uid=pod.metadata.uid, excluded_nodes=excluded)
                if known
                else SimulatedPod(pod=pod, excluded_nodes=excluded)
            )
            # Those before it compete for the same room, whatever becomes of them.
            question = PlacementRequest(pods=[*before[-(MAX_PODS - 1) :], asked])
            before.append(asked)
            job = self._job(cluster, profile, each, now)
            self._asked[job.metadata.name] = pod.metadata.uid
            event = Event(reference(POD, pod), "Descheduled", f"{each.plugin}: {each.reason}", "Migrate")
            reason = f"{each.plugin} moves {pod.key} from {pod.spec.node_name}: {each.reason}"
            writes.append(replace(create(MIGRATION, job, reason, event=event), question=question))
        return Writes(writes, notes)

    def _job(self, cluster: Cluster, profile: BuiltProfile, wanted: Wanted, now: float) -> PodMigrationJob:
        pod, args = wanted.pod, profile.migration
        annotations = {
            ANNOTATION_REASON: wanted.reason,
            ANNOTATION_TRIGGER: wanted.plugin,
            ANNOTATION_CREATED_BY: self.identity,
            ANNOTATION_NODE: pod.spec.node_name,
        }
        workload = cluster.workload(pod)
        if workload is not None:
            annotations[ANNOTATION_WORKLOAD] = workload.uid
        if self.configuration.approval == "Manual":
            annotations[ANNOTATION_APPROVAL] = "required"
        short = hashlib.sha256(f"{pod.metadata.uid} {now:.3f}".encode()).hexdigest()[:10]
        # What has failed holds no place that another pod could take over.
        mode = "EvictDirectly" if pod.status.phase == "Failed" else args.default_job_mode
        target = ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
        )
        return PodMigrationJob(
            metadata=ObjectMeta(name=f"{pod.metadata.name[:40].rstrip('.-')}-{short}", annotations=annotations),
            spec=PodMigrationJobSpec(
                pod_ref=target,
                ttl=args.default_job_ttl,
                mode=mode,
                delete_options=msgspec.convert(args.default_delete_options, JobDeleteOptions)
                if args.default_delete_options
                else None,
            ),
        )
