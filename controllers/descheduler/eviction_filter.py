"""Whether a pod may be moved: what it is, what its workload does, and how many moves are under way."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import msgspec

from api.kube.meta import LabelSelector
from api.kube.objects import Pod
from api.kube.selectors import label_selector_matches
from api.protocol import ANNOTATION_EVICTION_COST
from api.qos import SYSTEM_CRITICAL_PRIORITY
from controllers.descheduler.cluster_view import ANNOTATION_NODE, ANNOTATION_WORKLOAD, Cluster, is_ready
from controllers.descheduler.order import COST_LIMIT, cost
from controllers.descheduler.workloads import Workload, is_kind, most_at_once

ANNOTATION_EVICT = "descheduler.alpha.kubernetes.io/evict"
"""Lets a pod pass what asks for an owner, local data, priority and namespaces."""
ANNOTATION_MIRROR = "kubernetes.io/config.mirror"
BOUND_KINDS = ("DaemonSet", "BroadcastJob")
"""Owners that want a pod on each node; Kruise's DaemonSet has the name of Kubernetes' own."""
LABEL_LIFECYCLE = "lifecycle.apps.kruise.io/state"
"""Where Kruise's controllers are with a pod: `Normal`, or on the way into or out of an update or a deletion."""
AT_REST = ("", "Normal")
GATES = frozenset(
    {
        "MaxUnavailablePerWorkload", "MaxMigratingPerWorkload", "MaxMigratingPerNode", "MaxMigratingPerNamespace",
        "MaxMigratingGlobally", "ExpectedReplicas", "PVC", "BarePods", "LocalStorage", "SystemCritical",
        "PriorityThreshold", "LabelSelector", "Namespaces", "NodeFit",
    }
)  # fmt: skip


class Namespaces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Namespaces that are included, or excluded; both empty means all."""

    include: list[str] = []
    exclude: list[str] = []

    def has(self, namespace: str) -> bool:
        """Return whether a namespace is among them."""
        return namespace not in self.exclude and (not self.include or namespace in self.include)


class Threshold(msgspec.Struct, frozen=True):
    """Priority from which pods are never moved."""

    value: int | None = None
    name: str = ""


class FilterArgs(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Part of MigrationController's and DefaultEvictor's arguments that says which pods may be moved."""

    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    """Leave pods with claims alone."""
    priority_threshold: Threshold | None = None
    label_selector: LabelSelector | None = None
    namespaces: Namespaces = Namespaces()
    node_fit: bool = False
    max_migrating_globally: int | None = None
    max_migrating_per_namespace: int | None = None
    max_migrating_per_node: int | None = 2
    max_migrating_per_workload: int | str | None = None
    max_unavailable_per_workload: int | str | None = None
    skip_check_expected_replicas: bool = False
    min_replicas: int = 0
    """DefaultEvictor's: workloads with fewer replicas are left alone."""
    skip_eviction_gates: list[str] = []
    refuse_unrest: bool = True
    """Leave workloads alone that are updated or scaled, or that have pods NotReady besides the one to move."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod is not moved. `passing` says that it may be later, `spent` that no other pod is moved in this cycle."""

    reason: str
    passing: bool = False
    spent: bool = False
    limit: str = ""
    """Limit of a cycle that was met: of `node` or `namespace`."""


class EvictionFilter:
    """Refusals for one moment of the cluster. `accepted` are pods chosen since, which count as moving."""

    def __init__(self, cluster: Cluster, args: FilterArgs) -> None:
        self.cluster = cluster
        self.args = args
        self.accepted: dict[str, Pod] = {}

    def accept(self, pod: Pod) -> None:
        """Count a pod as moving from here on."""
        self.accepted[pod.metadata.uid] = pod

    def refusal(self, pod: Pod, *, moving: frozenset[str] | None = None) -> Refusal | None:
        """Return why a pod is not moved now; None where it may be.

        `moving` are the uids of the pods that count as moving; all with unfinished jobs by default.
        """
        return self.permanent(pod) or self.passing(pod, moving=moving)

    def permanent(self, pod: Pod) -> Refusal | None:
        """Return why a pod is never moved as it is."""
        found = self._by_nature(pod) or self._by_settings(pod) or self._by_replicas(pod)
        return Refusal(found) if found else None

    def passing(self, pod: Pod, *, moving: frozenset[str] | None = None) -> Refusal | None:
        """Return why a pod is not moved just now."""
        among = (self._moving if moving is None else moving) - {pod.metadata.uid}
        found = self._by_budgets(pod) or self._by_workload(pod, among) or self._by_limits(pod, among)
        return Refusal(found, passing=True) if found else None

    def unrest(self, pod: Pod, among: frozenset[str]) -> str:
        """Return why the workload of a pod is not at rest; pods `among` the moving ones may be NotReady."""
        workload = self.cluster.workload(pod) if self.args.refuse_unrest else None
        if workload is None:
            return ""
        if workload.unrest:
            return f"{workload.name}: {workload.unrest}"
        state = pod.metadata.labels.get(LABEL_LIFECYCLE, "")
        if state not in AT_REST:
            return f"{workload.name} has it in state {state[:40]}"
        away = [each for each in self._others(workload, pod) if each.metadata.uid not in among and not is_ready(each)]
        return f"{workload.name} has {len(away)} pods that are not ready" if away else ""

    # Internals

    def _others(self, workload: Workload, pod: Pod) -> list[Pod]:
        return [each for each in self.cluster.pods_of(workload) if each.metadata.uid != pod.metadata.uid]

    @cached_property
    def _jobs_moving(self) -> frozenset[str]:
        return frozenset(self.cluster.moving)

    @property
    def _moving(self) -> frozenset[str]:
        return self._jobs_moving | self.accepted.keys()

    def _checks(self, gate: str) -> bool:
        return gate not in self.args.skip_eviction_gates

    def _by_nature(self, pod: Pod) -> str:
        meta = pod.metadata
        owner = meta.controlled_by
        if ANNOTATION_MIRROR in meta.annotations or is_kind(owner, "Node"):
            return "a static pod is its kubelet's"
        for kind in BOUND_KINDS:
            if is_kind(owner, kind):
                return f"a {kind}'s pod belongs to its node"
        if meta.deletion_timestamp:
            return "it is going already"
        if cost(pod, ANNOTATION_EVICTION_COST) == COST_LIMIT:
            return "its eviction cost is the largest there is"
        return ""

    def _by_settings(self, pod: Pod) -> str:
        args, meta = self.args, pod.metadata
        if ANNOTATION_EVICT in meta.annotations:
            return ""
        if self._checks("Namespaces") and not args.namespaces.has(meta.namespace):
            return f"namespace {meta.namespace} is left alone"
        bare = meta.controlled_by is None
        failed = args.evict_failed_bare_pods and pod.status.phase == "Failed"
        if bare and not args.evict_all_bare_pods and not failed and self._checks("BarePods"):
            return "nothing would make it anew"
        critical = (pod.spec.priority or 0) >= SYSTEM_CRITICAL_PRIORITY
        if critical and not args.evict_system_critical_pods and self._checks("SystemCritical"):
            return "it is critical to the system"
        local = any(each.empty_dir is not None or each.host_path is not None for each in pod.spec.volumes)
        if local and not args.evict_local_storage_pods and self._checks("LocalStorage"):
            return "it has data on its node"
        claims = any(each.persistent_volume_claim or each.ephemeral is not None for each in pod.spec.volumes)
        if claims and args.ignore_pvc_pods and self._checks("PVC"):
            return "it has claims"
        limit = args.priority_threshold.value if args.priority_threshold else None
        if limit is not None and (pod.spec.priority or 0) >= limit and self._checks("PriorityThreshold"):
            return f"its priority is not below {limit}"
        chosen = args.label_selector
        if chosen and self._checks("LabelSelector") and not label_selector_matches(chosen, meta.labels):
            return "its labels are not selected"
        return ""

    def _by_replicas(self, pod: Pod) -> str:
        workload = self.cluster.workload(pod)
        if workload is None or workload.replicas is None:
            return ""
        if workload.replicas < self.args.min_replicas:
            return f"{workload.name} has {workload.replicas} replicas, less than {self.args.min_replicas}"
        if self.args.skip_check_expected_replicas or not self._checks("ExpectedReplicas"):
            return ""
        replicas = workload.replicas
        migrating = most_at_once(self.args.max_migrating_per_workload, replicas)
        unavailable = most_at_once(self.args.max_unavailable_per_workload, replicas)
        if replicas == 1 or replicas in (migrating, unavailable):
            return f"{workload.name} has {replicas} replicas, as many as may be away at once"
        return ""

    def _by_budgets(self, pod: Pod) -> str:
        budgets = self.cluster.budgets_of(pod)
        if len(budgets) > 1:
            return f"{len(budgets)} disruption budgets cover it; the API server evicts under one only"
        for budget in budgets:
            if budget.status.disruptions_allowed <= 0 and is_ready(pod):
                return f"disruption budget {budget.metadata.name} allows none at present"
        return ""

    def _by_workload(self, pod: Pod, among: frozenset[str]) -> str:
        workload = self.cluster.workload(pod)
        if workload is None:
            return ""
        found = self.unrest(pod, among)
        if found:
            return found
        others = self._others(workload, pod)
        replicas = len(others) + 1 if workload.replicas is None else workload.replicas
        migrating = {each.metadata.uid for each in others if each.metadata.uid in among}
        migrating |= {
            job.metadata.uid
            for job in self.cluster.awaited
            if job.metadata.annotations.get(ANNOTATION_WORKLOAD) == workload.uid
        }
        away = {each.metadata.uid for each in others if not is_ready(each)}
        most = most_at_once(self.args.max_migrating_per_workload, replicas)
        if self._checks("MaxMigratingPerWorkload") and migrating and len(migrating) >= most:
            return f"{len(migrating)} pods of {workload.name} are moving already"
        most = most_at_once(self.args.max_unavailable_per_workload, replicas)
        if self._checks("MaxUnavailablePerWorkload") and len(migrating | away) >= most:
            return f"{len(migrating | away)} pods of {workload.name} are away already"
        return ""

    def _by_limits(self, pod: Pod, among: frozenset[str]) -> str:
        args, known = self.args, self.cluster.pods_by_uid
        most = args.max_migrating_globally
        awaited = self.cluster.awaited
        moving = len(among) + len(awaited)
        if most is not None and moving >= most and self._checks("MaxMigratingGlobally"):
            return f"{moving} pods are moving already"
        places = [known.get(uid) or self.accepted.get(uid) for uid in among]
        by_node = Counter(each.spec.node_name for each in places if each is not None)
        by_namespace = Counter(each.metadata.namespace for each in places if each is not None)
        by_namespace.update(job.spec.pod_ref.namespace for job in awaited)
        by_node.update(job.metadata.annotations.get(ANNOTATION_NODE, "") for job in awaited)
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        most = args.max_migrating_per_node
        if most and node and by_node[node] >= most and self._checks("MaxMigratingPerNode"):
            return f"{by_node[node]} pods of node {node} are moving already"
        most = args.max_migrating_per_namespace
        if most is not None and by_namespace[namespace] >= most and self._checks("MaxMigratingPerNamespace"):
            return f"{by_namespace[namespace]} pods of namespace {namespace} are moving already"
        return ""
