"""Kinds that the controllers watch, with the fields that they read: lists of many thousands stay small."""

from typing import Any

import msgspec

from api.crds import CLUSTER_COLOCATION_PROFILE as CLUSTER_COLOCATION_PROFILE_DEFINITION
from api.crds import DEVICE as DEVICE_DEFINITION
from api.crds import ELASTIC_QUOTA as ELASTIC_QUOTA_DEFINITION
from api.crds import ELASTIC_QUOTA_PROFILE as ELASTIC_QUOTA_PROFILE_DEFINITION
from api.crds import NODE_METRIC as NODE_METRIC_DEFINITION
from api.crds import NODE_RESOURCE_TOPOLOGY as NODE_RESOURCE_TOPOLOGY_DEFINITION
from api.crds import NODE_SLO as NODE_SLO_DEFINITION
from api.crds import RECOMMENDATION as RECOMMENDATION_DEFINITION
from api.crds import WORKLOAD_PROFILE as WORKLOAD_PROFILE_DEFINITION
from api.crds import ResourceInterference, WorkloadProfileSpec
from api.kube.meta import Condition, Labels, ObjectMeta, Quantity, Wire
from api.protocol import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from cluster.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, custom


class NodeTaint(Wire, frozen=True, kw_only=True):
    """A taint with the time that it was set."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Wire, frozen=True, kw_only=True):
    """Taints and the cordon."""

    taints: list[NodeTaint] = []
    unschedulable: bool = False


class NodeStatus(Wire, frozen=True, kw_only=True):
    """Resources and conditions."""

    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: list[Condition] = []


class OwnedAmounts(Wire, frozen=True, kw_only=True):
    """Which of the manager's amounts a field manager wrote last; of a field set only the names count."""

    batch_cpu: dict[str, Any] | None = msgspec.field(default=None, name=f"f:{BATCH_CPU}")
    batch_memory: dict[str, Any] | None = msgspec.field(default=None, name=f"f:{BATCH_MEMORY}")
    mid_cpu: dict[str, Any] | None = msgspec.field(default=None, name=f"f:{MID_CPU}")
    mid_memory: dict[str, Any] | None = msgspec.field(default=None, name=f"f:{MID_MEMORY}")

    @property
    def is_written(self) -> bool:
        """Whether it wrote one of them."""
        return any(each is not None for each in (self.batch_cpu, self.batch_memory, self.mid_cpu, self.mid_memory))


class OwnedStatus(Wire, frozen=True, kw_only=True):
    """Fields of a node's status that a field manager wrote last."""

    allocatable: OwnedAmounts = msgspec.field(default=OwnedAmounts(), name="f:allocatable")


class OwnedFields(Wire, frozen=True, kw_only=True):
    """Fields of a node that a field manager wrote last."""

    status: OwnedStatus = msgspec.field(default=OwnedStatus(), name="f:status")


class FieldManager(Wire, frozen=True, kw_only=True):
    """An entry of `metadata.managedFields`."""

    manager: str = ""
    time: str | None = None
    fields_v1: OwnedFields = msgspec.field(default=OwnedFields(), name="fieldsV1")


class NodeMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata of a node with the field managers."""

    managed_fields: list[FieldManager] = []


class Node(Wire, frozen=True, kw_only=True):
    """A node as far as the manager reads it."""

    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.metadata.name


class Requests(Wire, frozen=True, kw_only=True):
    """Requests and limits of a container."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class PodContainer(Wire, frozen=True, kw_only=True):
    """A container; `restart_policy` Always on an init container makes it a sidecar."""

    name: str = ""
    resources: Requests = Requests()
    restart_policy: str | None = None


class PodSpec(Wire, frozen=True, kw_only=True):
    """Requests, place and priority of a pod."""

    containers: list[PodContainer] = []
    init_containers: list[PodContainer] = []
    node_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = "default-scheduler"
    overhead: dict[str, Quantity] = {}
    resources: Requests | None = None


class ContainerEnd(Wire, frozen=True, kw_only=True):
    """Why and when a container ended."""

    reason: str = ""
    finished_at: str | None = None


class ContainerState(Wire, frozen=True, kw_only=True):
    """A container's state, as far as it ended."""

    terminated: ContainerEnd | None = None


class ContainerStatus(Wire, frozen=True, kw_only=True):
    """What the node gives to a container, how it is and how it was before its last restart."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources: dict[str, Quantity] = {}
    resources: Requests | None = None


class PodStatus(Wire, frozen=True, kw_only=True):
    """Phase, Kubernetes' own class, and what the node gives while a resize is under way."""

    phase: str = "Pending"
    qos_class: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    allocated_resources: dict[str, Quantity] = {}
    resources: Requests | None = None


class PodMeta(Wire, frozen=True, kw_only=True):
    """Metadata of a pod without its managed fields and owners."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: Labels = {}
    annotations: dict[str, str] = {}


class Pod(Wire, frozen=True, kw_only=True):
    """A pod as far as the manager reads it."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ConfigMap(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A ConfigMap's texts."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class Namespace(Wire, frozen=True, kw_only=True):
    """A namespace; selectors read its labels."""

    metadata: ObjectMeta = ObjectMeta()


class ShownStatus(Wire, frozen=True, kw_only=True):
    """Figures of a profile, without the usual values, which are most of its size."""

    resources: list[ResourceInterference] = []


class ShownProfile(Wire, frozen=True, kw_only=True):
    """A WorkloadProfile as far as the page reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadProfileSpec
    status: ShownStatus = ShownStatus()


NODE = NODES.of(Node)
NAMESPACE = NAMESPACES.of(Namespace)
POD = PODS.of(Pod)
CONFIG_MAP = CONFIG_MAPS.of(ConfigMap)
CLUSTER_COLOCATION_PROFILE = custom(CLUSTER_COLOCATION_PROFILE_DEFINITION)
NODE_METRIC = custom(NODE_METRIC_DEFINITION)
NODE_SLO = custom(NODE_SLO_DEFINITION)
NODE_RESOURCE_TOPOLOGY = custom(NODE_RESOURCE_TOPOLOGY_DEFINITION)
DEVICE = custom(DEVICE_DEFINITION)
ELASTIC_QUOTA = custom(ELASTIC_QUOTA_DEFINITION)
ELASTIC_QUOTA_PROFILE = custom(ELASTIC_QUOTA_PROFILE_DEFINITION)
RECOMMENDATION = custom(RECOMMENDATION_DEFINITION)
WORKLOAD_PROFILE = custom(WORKLOAD_PROFILE_DEFINITION)
SHOWN_PROFILE = WORKLOAD_PROFILE.of(ShownProfile)
