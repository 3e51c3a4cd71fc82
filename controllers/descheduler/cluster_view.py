"""The cluster as plugins see it: pods by node and workload, usage, budgets and unfinished migrations."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.crds.placement import PodMigrationJob, Reservation
from api.kube.objects import Node, Pod, PodDisruptionBudget
from api.kube.pod_requests import effective_requests
from api.kube.resources import QuantityError, Resources, parse_quantity, subtract, total
from api.kube.selectors import label_selector_matches
from api.kube.times import epoch_seconds
from api.protocol import ANNOTATION_NODE_RAW_ALLOCATABLE, LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS
from api.qos import PriorityBand, QoSClass, priority_band
from cluster.resources import Key, Resource
from controllers.descheduler.kinds import (
    BUDGET,
    MIGRATION,
    NAMESPACE,
    NODE,
    NODE_METRIC,
    POD,
    RESERVATION,
    WORKLOADS,
    WorkloadObject,
)
from controllers.descheduler.workloads import Workload, workload_of
from controllers.runtime.view import View

ENDED = frozenset({"Succeeded", "Failed", "Aborted"})
"""Phases of a job in which nothing more happens."""
ANNOTATION_PASSED = "scheduling.koordinator.sh/passed-arbitration"
ANNOTATION_CREATED_BY = "descheduler.koordinator.sh/job-created-by"
ANNOTATION_TRIGGER = "descheduler.koordinator.sh/evict-trigger"
"""Annotation of a job: the plugin that chose the pod."""
ANNOTATION_APPROVAL = "descheduler.koordinator.sh/approval"
ANNOTATION_WORKLOAD = "descheduler.koordinator.sh/workload-uid"
"""Annotation of a job, by which limits of workloads outlast the process and the pod."""
ANNOTATION_NODE = "descheduler.koordinator.sh/source-node"
"""Annotation of a job: the node that it takes load from, by which limits of nodes outlast the pod."""


class Cluster:
    """One moment of the cluster; what a plugin does not ask for is not computed."""

    def __init__(self, view: View, workloads: Sequence[Resource[WorkloadObject]] = WORKLOADS) -> None:
        """`workloads` are the kinds whose objects the view has."""
        self.nodes: Mapping[Key, Node] = view.objects(NODE)
        self.pods: Mapping[Key, Pod] = view.objects(POD)
        self.metrics: Mapping[Key, NodeMetric] = view.objects(NODE_METRIC)
        self.jobs: Mapping[Key, PodMigrationJob] = view.objects(MIGRATION)
        self.reservations: Mapping[Key, Reservation] = view.objects(RESERVATION)
        self._view = view
        self._kinds = workloads
        self._free: dict[str, Resources] = {}

    @cached_property
    def pods_by_node(self) -> Mapping[str, Sequence[Pod]]:
        """Unfinished pods by the node that they are bound to."""
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods.values():
            if pod.spec.node_name and not pod.finished:
                found[pod.spec.node_name].append(pod)
        return found

    @cached_property
    def pods_by_uid(self) -> Mapping[str, Pod]:
        """All pods by uid."""
        return {pod.metadata.uid: pod for pod in self.pods.values()}

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels by namespace."""
        return {key.name: each.metadata.labels for key, each in self._view.objects(NAMESPACE).items()}

    @cached_property
    def _workloads(self) -> Mapping[str, tuple[str, Any]]:
        return {
            each.metadata.uid: (kind.kind, each) for kind in self._kinds for each in self._view.objects(kind).values()
        }

    def workload(self, pod: Pod) -> Workload | None:
        """Return the workload of a pod; None for a bare one."""
        return workload_of(pod, self._workloads)

    @cached_property
    def recent_moves(self) -> Mapping[str, int]:
        """Moves by uid of the workload, of the jobs that are kept: begun, or ended with the pod moved."""
        return Counter(
            owner
            for job in self.jobs.values()
            if (owner := job.metadata.annotations.get(ANNOTATION_WORKLOAD))
            and (job.status.phase == "Succeeded" or (job.status.phase not in ENDED and has_passed(job)))
        )

    def moves_of(self, pod: Pod) -> int:
        """Return how often pods of a pod's workload were moved lately; 0 for a bare pod."""
        if not self.recent_moves:
            return 0
        owner = self.workload(pod)
        return self.recent_moves.get(owner.uid, 0) if owner is not None else 0

    def free(self, node: Node) -> Resources:
        """Return what a node has beyond the requests of its pods, computed once; do not change it."""
        found = self._free.get(node.name)
        if found is None:
            found = subtract(allocatable(node), requested(self.pods_by_node.get(node.name, ())))
            if "pods" not in node.status.allocatable:
                found["pods"] = 1
            self._free[node.name] = found
        return found

    @cached_property
    def _workload_pods(self) -> Mapping[str, Sequence[Pod]]:
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods.values():
            owner = self.workload(pod)
            if owner is not None and not pod.finished:
                found[owner.uid].append(pod)
        return found

    def pods_of(self, workload: Workload) -> Sequence[Pod]:
        """Return the unfinished pods of a workload."""
        return self._workload_pods.get(workload.uid, ())

    def budgets_of(self, pod: Pod) -> list[PodDisruptionBudget]:
        """Return the disruption budgets that cover a pod."""
        return [
            each
            for key, each in self._view.objects(BUDGET).items()
            if key.namespace == pod.metadata.namespace
            and label_selector_matches(each.spec.selector, pod.metadata.labels)
        ]

    @cached_property
    def unfinished_jobs(self) -> Sequence[PodMigrationJob]:
        """Jobs that have not ended."""
        return [job for job in self.jobs.values() if job.status.phase not in ENDED]

    @cached_property
    def moving(self) -> Mapping[str, PodMigrationJob]:
        """Unfinished jobs by the uid of their pods; of several the one that passed the arbitration, else the oldest."""
        best_last = sorted(self.unfinished_jobs, key=_claim)
        return {pod.metadata.uid: job for job in best_last if (pod := self.pod_of(job)) is not None}

    @cached_property
    def passed(self) -> frozenset[str]:
        """Uids of the pods whose unfinished jobs passed the arbitration."""
        return frozenset(uid for uid, job in self.moving.items() if has_passed(job))

    @cached_property
    def awaited(self) -> Sequence[PodMigrationJob]:
        """Jobs that passed the arbitration and whose pod is gone: its successor is not ready yet."""
        return [job for job in self.unfinished_jobs if has_passed(job) and self.pod_of(job) is None]

    def pod_of(self, job: PodMigrationJob) -> Pod | None:
        """Return the pod that a job is to move, None when it is gone or has a successor of its name."""
        found = self.pods.get(Key(job.spec.pod_ref.namespace, job.spec.pod_ref.name))
        wanted = job.spec.pod_ref.uid
        return found if found is not None and (not wanted or found.metadata.uid == wanted) else None

    def metric_of_pods(self, node: str) -> Mapping[Key, Resources]:
        """Return the reported usage of a node's pods."""
        metric = self.metrics.get(Key("", node))
        if metric is None:
            return {}
        return {Key(each.namespace, each.name): amounts(each.pod_usage.resources) for each in metric.status.pods_metric}


def has_passed(job: PodMigrationJob) -> bool:
    """Return whether a job passed the arbitration."""
    return job.status.phase == "Running" or job.metadata.annotations.get(ANNOTATION_PASSED) == "true"


def _claim(job: PodMigrationJob) -> tuple[bool, float, str]:
    return has_passed(job), -(epoch_seconds(job.metadata.creation_timestamp) or 0.0), job.metadata.uid


def amounts(quantities: Mapping[str, Any]) -> Resources:
    """Return a resource list as numbers, without what cannot be read."""
    found: Resources = {}
    for name, text in quantities.items():
        try:
            found[name] = max(0, parse_quantity(text, 1000 if name == "cpu" else 1))
        except QuantityError:
            continue
    return found


def allocatable(node: Node) -> Resources:
    """Return what a node gives, before amplification."""
    raw = node.metadata.annotations.get(ANNOTATION_NODE_RAW_ALLOCATABLE)
    return {**amounts(node.status.allocatable), **(_decoded(raw) if raw else {})}


def _decoded(text: str) -> Resources:
    try:
        return amounts(msgspec.json.decode(text, type=dict[str, str | int | float]))
    except (msgspec.DecodeError, RecursionError):
        return {}


def requests(pod: Pod) -> Resources:
    """Return what the scheduler counts of a pod; what cannot be read is left out."""
    return effective_requests(pod, amounts)


def requested(pods: Iterable[Pod]) -> Resources:
    """Return the sum of requests, and the number of pods."""
    listed = list(pods)
    return {**total(requests(pod) for pod in listed), "pods": len(listed)}


def is_ready(pod: Pod) -> bool:
    """Return whether a pod serves: its condition Ready, and not going away."""
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
    return ready and not pod.metadata.deletion_timestamp


def node_ready(node: Node) -> bool:
    """Return whether a node is Ready; one that states no conditions is."""
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def qos_of(pod: Pod) -> QoSClass:
    """Return the class by label; none where it has none."""
    label = pod.metadata.labels.get(LABEL_QOS_CLASS, "")
    return QoSClass(label) if label in frozenset(QoSClass) else QoSClass.NONE


def band_of(pod: Pod) -> PriorityBand:
    """Return the band by label, else by priority."""
    label = pod.metadata.labels.get(LABEL_PRIORITY_CLASS, "")
    return PriorityBand(label) if label and label in frozenset(PriorityBand) else priority_band(pod.spec.priority)


def is_prod(pod: Pod) -> bool:
    """Return whether a pod is a service: of band prod, or of none and no best effort."""
    band = band_of(pod)
    return band is PriorityBand.PROD or (band is PriorityBand.NONE and qos_of(pod) is not QoSClass.BE)
