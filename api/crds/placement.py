"""scheduling.koordinator.sh: reservations, migrations, network topology and explanations of placements."""

from typing import Annotated, Any

from api.crds.definition import OPAQUE, TIME, Column, Definition, among, nonempty
from api.kube.device import Device
from api.kube.meta import Condition, LabelSelector, ObjectMeta, ObjectReference, OwnerReference, ResourceList, Wire
from api.kube.objects import Taint

GROUP = "scheduling.koordinator.sh"

Template = Annotated[dict[str, Any], OPAQUE]
"""A pod or object template, kept whole, so that an object created from it loses no field."""


class ControllerReference(OwnerReference, frozen=True, kw_only=True):
    """The controller whose pods own a reservation."""

    namespace: str = ""


class ReservationOwner(Wire, frozen=True, kw_only=True):
    """Owners that may use a reservation; the fields given must all hold."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class ReservationTaint(Taint, frozen=True, kw_only=True):
    """A taint of a reservation, and the time that it was set."""

    time_added: Annotated[str, TIME] | None = None


class PreAllocationPolicy(Wire, frozen=True, kw_only=True):
    """Policy for taking running pods into a reservation."""

    mode: Annotated[str, among("Default", "Cluster")] | None = None
    enable_multiple: bool = False


class ReservationSpec(Wire, frozen=True, kw_only=True):
    """Reserved resources, their owners and their lifetime. `allocate_once` None means True, `ttl` None 24h."""

    template: Template | None = None
    owners: Annotated[list[ReservationOwner], nonempty()]
    ttl: str | None = None
    expires: Annotated[str, TIME] | None = None
    pre_allocation: bool = False
    allocate_once: bool | None = None
    allocate_policy: Annotated[str, among("", "Aligned", "Restricted")] = ""
    unschedulable: bool = False
    taints: list[ReservationTaint] = []
    pre_allocation_policy: PreAllocationPolicy | None = None


class ReservationStatus(Wire, frozen=True, kw_only=True):
    """Phase of a reservation and its allocations; an empty phase is Pending."""

    phase: Annotated[str, among("", "Pending", "Available", "Succeeded", "Waiting", "Failed")] = ""
    conditions: list[Condition] = []
    current_owners: list[ObjectReference] = []
    node_name: str = ""
    allocatable: ResourceList = {}
    allocated: ResourceList = {}


class Reservation(Wire, frozen=True, kw_only=True):
    """Resources of a node set aside for pods to come."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()


class MigrationReservation(Wire, frozen=True, kw_only=True):
    """The reservation that a migration uses or makes."""

    reservation_ref: ObjectReference | None = None
    template: Template | None = None
    preemption_options: Template | None = None


class DeletePreconditions(Wire, frozen=True, kw_only=True):
    """What the pod must still be for its deletion."""

    uid: str = ""
    resource_version: str = ""


class JobDeleteOptions(Wire, frozen=True, kw_only=True):
    """DeleteOptions of the API, as a job's eviction passes them on."""

    api_version: str = ""
    kind: str = ""
    dry_run: list[str] = []
    grace_period_seconds: int | None = None
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None
    orphan_dependents: bool | None = None
    preconditions: DeletePreconditions | None = None
    propagation_policy: str | None = None


class PodMigrationJobSpec(Wire, frozen=True, kw_only=True):
    """Pod to migrate, and the mode. An empty mode is ReservationFirst."""

    pod_ref: ObjectReference
    paused: bool = False
    ttl: str | None = None
    mode: Annotated[str, among("", "ReservationFirst", "EvictDirectly")] = ""
    reservation_options: MigrationReservation | None = None
    delete_options: JobDeleteOptions | None = None


class PreemptedReservation(Wire, frozen=True, kw_only=True):
    """A reservation made for pods that a migration preempted."""

    namespace: str = ""
    name: str = ""
    node_name: str = ""
    phase: str = ""
    preempted_pod_ref: ObjectReference | None = None
    pods_ref: list[ObjectReference] = []


class PodMigrationJobStatus(Wire, frozen=True, kw_only=True):
    """Progress of the migration; an empty phase is Pending. `pod_ref` is the pod that replaced the evicted one."""

    phase: Annotated[str, among("", "Pending", "Running", "Succeeded", "Failed", "Aborted")] = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    node_name: str = ""
    pod_ref: ObjectReference | None = None
    preempted_pods_ref: list[ObjectReference] = []
    preempted_pods_reservation: list[PreemptedReservation] = []


class PodMigrationJob(Wire, frozen=True, kw_only=True):
    """Moves one pod safely: a place first, then the eviction."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodMigrationJobSpec
    status: PodMigrationJobStatus = PodMigrationJobStatus()


class TopologyLayer(Wire, frozen=True, kw_only=True):
    """A layer of the network and the node labels that name its members, any of which may be set."""

    topology_layer: str
    parent_topology_layer: str = ""
    label_key: list[str] = []


class ClusterNetworkTopologySpec(Wire, frozen=True, kw_only=True):
    """Layers between ClusterTopologyLayer (root) and NodeTopologyLayer (leaf)."""

    network_topology_spec: list[TopologyLayer] = []


class TopologyName(Wire, frozen=True, kw_only=True):
    """One member of a layer."""

    topology_layer: str = ""
    topology_name: str = ""


class TopologyDetail(Wire, frozen=True, kw_only=True):
    """A member with its place in the tree."""

    topology_info: TopologyName = TopologyName()
    parent_topology_info: TopologyName | None = None
    child_topology_layer: str = ""
    child_topology_names: list[str] = []
    node_num: int = 0


class ClusterNetworkTopologyStatus(Wire, frozen=True, kw_only=True):
    """The tree as found."""

    detail_status: list[TopologyDetail] = []


class ClusterNetworkTopology(Wire, frozen=True, kw_only=True):
    """The network's tree; the scheduler reads the one named default."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterNetworkTopologySpec = ClusterNetworkTopologySpec()
    status: ClusterNetworkTopologyStatus = ClusterNetworkTopologyStatus()


class PlacedPod(Wire, frozen=True, kw_only=True):
    """A pod and the node it would get."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    node_name: str = ""


class NodeFailure(Wire, frozen=True, kw_only=True):
    """Nodes that one plugin refused for one reason."""

    failed_plugin: str = ""
    reason: str = ""
    preempt_might_help: bool = False
    failed_nodes: list[str] = []


class AttemptExplanation(Wire, frozen=True, kw_only=True):
    """One scheduling attempt: where the pods would go, or why they cannot."""

    schedulable: bool = False
    failed_message: str = ""
    feasible_scheduling_result: list[PlacedPod] = []
    node_failed_details: list[NodeFailure] = []


class PossibleVictim(Wire, frozen=True, kw_only=True):
    """A pod whose preemption would help."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    is_nominated_pod: bool = False


class NodeVictims(Wire, frozen=True, kw_only=True):
    """Victims by node."""

    node_name: str = ""
    possible_victims: list[PossibleVictim] = []


class DomainExplanation(Wire, frozen=True, kw_only=True):
    """The answer for one topology domain, before and after preemption."""

    topology_domain: str = ""
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    schedule_explanation: AttemptExplanation | None = None
    node_possible_victims: list[NodeVictims] = []
    preempt_explanation: AttemptExplanation | None = None


class ScheduleExplanationSpec(Wire, frozen=True, kw_only=True):
    """Subject of the explanation: a pod or job as namespace/name, or a gang group's id. `ttl` None is 24h."""

    question_object_key: str = ""
    question_object_template: Template | None = None
    ttl: str | None = None


class ScheduleExplanationStatus(Wire, frozen=True, kw_only=True):
    """The answer."""

    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    last_update_time: Annotated[str, TIME] | None = None
    detailed_explanation: list[DomainExplanation] = []


class ScheduleExplanation(Wire, frozen=True, kw_only=True):
    """Reasons why a pod or gang is not placed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScheduleExplanationSpec = ScheduleExplanationSpec()
    status: ScheduleExplanationStatus = ScheduleExplanationStatus()


_PHASE = Column("Phase", ".status.phase")
_NODE = Column("Node", ".status.nodeName")
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

DEVICE = Definition("Device", "devices", GROUP, Device, status=False)
RESERVATION = Definition(
    "Reservation",
    "reservations",
    GROUP,
    Reservation,
    columns=(_PHASE, _AGE, _NODE, Column("TTL", ".spec.ttl"), Column("Expires", ".spec.expires")),
)
POD_MIGRATION_JOB = Definition(
    "PodMigrationJob",
    "podmigrationjobs",
    GROUP,
    PodMigrationJob,
    short_names=("pmj",),
    columns=(
        _PHASE,
        Column("Status", ".status.status"),
        _AGE,
        _NODE,
        Column("Reservation", ".spec.reservationOptions.reservationRef.name"),
        Column("PodNamespace", ".spec.podRef.namespace"),
        Column("Pod", ".spec.podRef.name"),
        Column("NewPod", ".status.podRef.name"),
        Column("TTL", ".spec.ttl"),
    ),
)
CLUSTER_NETWORK_TOPOLOGY = Definition(
    "ClusterNetworkTopology", "clusternetworktopologies", GROUP, ClusterNetworkTopology
)
SCHEDULE_EXPLANATION = Definition(
    "ScheduleExplanation",
    "scheduleexplanations",
    GROUP,
    ScheduleExplanation,
    namespaced=True,
    short_names=("sched-exp",),
    columns=(Column("Schedulable", ".status.schedulable", "boolean"),),
)
