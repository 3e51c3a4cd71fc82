"""Kubernetes objects as the project reads them: the fields some program needs, decoded straight from JSON.

Every class decodes the API server's JSON (`msgspec.json.decode(raw, type=Pod)`). Unknown fields are passed
over and absent ones take the default. Values are frozen; labels and annotations are dicts, never written to.
"""

from typing import Any

import msgspec

from api.kube.meta import Condition, LabelSelector, ObjectMeta, Quantity, Wire
from api.kube.selectors import NodeSelector, NodeSelectorTerm


class ResourceRequirements(Wire, frozen=True):
    """Requests and limits as Kubernetes quantities (see `api.kube.resources.parse_resources`)."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class ContainerPort(Wire, frozen=True):
    """A port; `host_port` 0 means that the node's port is not taken."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Wire, frozen=True):
    """A container of a pod; `restart_policy` Always on an init container makes it a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []
    restart_policy: str | None = None
    restart_policy_rules: list[dict[str, Any]] = []


class Toleration(Wire, frozen=True):
    """An empty key with `Exists` tolerates everything; an empty effect matches all effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(Wire, frozen=True):
    """A node's repellent: NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""


class PreferredSchedulingTerm(Wire, frozen=True):
    """A node selector term worth `weight` (1 to 100)."""

    weight: int = 1
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    """Required and preferred nodes of a pod."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Wire, frozen=True):
    """Pods (by label, in some namespaces) that share or must not share a topology domain."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Wire, frozen=True):
    """A pod affinity term worth `weight` (1 to 100)."""

    weight: int = 1
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Required and preferred terms; serves for affinity and anti-affinity alike."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    """The three kinds of affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    """Limit of the skew of matching pods over the domains of a node label."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = []


class SchedulingGate(Wire, frozen=True):
    """A named reason not to schedule a pod yet."""

    name: str = ""


class NamedClaim(Wire, frozen=True):
    """A persistent volume claim by name."""

    claim_name: str = ""


class Volume(Wire, frozen=True):
    """A volume as far as it limits placement or eviction: a claim, a disk of one node, data that go with the pod."""

    name: str = ""
    persistent_volume_claim: NamedClaim | None = None
    ephemeral: dict[str, Any] | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None


class PodSpec(Wire, frozen=True):
    """Desired state of a pod."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[SchedulingGate] = []
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    overhead: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    volumes: list[Volume] = []
    host_network: bool = False
    host_users: bool | None = None
    termination_grace_period_seconds: int | None = None
    restart_policy: str = "Always"
    service_account_name: str = ""
    resource_claims: list[dict[str, Any]] = []
    scheduling_group: dict[str, Any] = {}


class ContainerEnd(Wire, frozen=True):
    """Why a container waits or ended."""

    reason: str = ""
    exit_code: int | None = None


class ContainerState(Wire, frozen=True):
    """State of a container; both None while it runs."""

    waiting: ContainerEnd | None = None
    terminated: ContainerEnd | None = None


class ContainerStatus(Wire, frozen=True):
    """A container on its node. What it is given differs from what it asks for while it is resized in place."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    allocated_resources: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None


class PodStatus(Wire, frozen=True):
    """Observed state of a pod."""

    phase: str = "Pending"
    qos_class: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] = []
    start_time: str | None = None
    reason: str = ""
    message: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    allocated_resources: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    resource_claim_statuses: list[dict[str, Any]] = []


class Pod(Wire, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key

    @property
    def finished(self) -> bool:
        """True when the pod holds no resources any more."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeSpec(Wire, frozen=True):
    """Taints and the cordon."""

    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")


class ContainerImage(Wire, frozen=True):
    """An image present on a node, under all its names."""

    names: list[str] = []
    size_bytes: int = 0


class NodeStatus(Wire, frozen=True):
    """Observed state of a node."""

    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: list[Condition] = []
    images: list[ContainerImage] = []
    declared_features: list[str] = []
    """Features of the kubelet that pods may need, sorted."""


class Node(Wire, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.metadata.name


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """Selector of the pods that a budget covers."""

    selector: LabelSelector | None = None
    min_available: str | int | None = None
    max_unavailable: str | int | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    """Number of them that may be disrupted at present."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Wire, frozen=True):
    """A limit on voluntary evictions."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class Namespace(Wire, frozen=True):
    """A namespace; its labels matter to namespace selectors."""

    metadata: ObjectMeta = ObjectMeta()
