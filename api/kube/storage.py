"""Storage objects as far as they decide where a pod can go: claims, volumes, classes, and attach limits."""

from typing import Any

from api.kube.meta import LabelSelector, ObjectMeta, Quantity, ResourceList, Wire
from api.kube.resources import QuantityError, parse_quantity
from api.kube.selectors import NodeSelector

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim whose volume is settled."""
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class StorageRequest(Wire, frozen=True):
    """Requested size of a claim."""

    requests: ResourceList = {}


class ClaimSpec(Wire, frozen=True):
    """Requirements of a claim, and the volume bound to it."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []
    volume_mode: str = "Filesystem"
    resources: StorageRequest = StorageRequest()
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class StoragePhase(Wire, frozen=True):
    """Phase of a claim (Pending, Bound, Lost) or volume (Pending, Available, Bound, Released, Failed)."""

    phase: str = ""


class Claim(Wire, frozen=True):
    """A persistent volume claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: StoragePhase = StoragePhase()

    @property
    def class_name(self) -> str:
        """Its storage class; the annotation is older than the field and goes before it."""
        return self.metadata.annotations.get(BETA_CLASS) or self.spec.storage_class_name or ""

    @property
    def bound(self) -> bool:
        """Return whether its volume is settled."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def bytes(self) -> int:
        """Storage asked for."""
        return parse_quantity(self.spec.resources.requests.get("storage", 0))


class VolumeNodeAffinity(Wire, frozen=True):
    """The nodes that can reach a volume."""

    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    """The driver that attaches a volume."""

    driver: str = ""
    volume_handle: str = ""


class ClaimRef(Wire, frozen=True):
    """The claim that a volume belongs to."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeSpec(Wire, frozen=True):
    """Properties of a volume."""

    capacity: ResourceList = {}
    access_modes: list[str] = []
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimRef | None = None
    volume_attributes_class_name: str | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None


class PersistentVolume(Wire, frozen=True):
    """A persistent volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()
    status: StoragePhase = StoragePhase()

    @property
    def bytes(self) -> int:
        """Storage offered."""
        return parse_quantity(self.spec.capacity.get("storage", 0))


class TopologyRequirement(Wire, frozen=True):
    """One label of an allowed topology."""

    key: str = ""
    values: list[str] = []


class TopologyTerm(Wire, frozen=True):
    """Labels that must all agree."""

    match_label_expressions: list[TopologyRequirement] = []


class StorageClass(Wire, frozen=True):
    """Provisioning of the volumes of a class."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []


class CsiDriverSpec(Wire, frozen=True):
    """Abilities of a driver."""

    storage_capacity: bool | None = None
    """The driver says in CsiStorageCapacity objects how much room it has, and volumes are made only where there is."""
    prevent_pod_scheduling_if_missing: bool | None = None
    """Pods with volumes of the driver go only to nodes that it is on."""


class CsiDriver(Wire, frozen=True):
    """A storage driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(Wire, frozen=True):
    """Room for new volumes of a storage class in one segment of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    """Nodes that reach the segment; None for none."""
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    @property
    def largest_bytes(self) -> int:
        """Size of the largest volume that may be made; -1 when nothing, or nothing readable, is said."""
        limit = self.capacity if self.maximum_volume_size is None else self.maximum_volume_size
        try:
            return -1 if limit is None else parse_quantity(limit)
        except QuantityError:
            return -1


class DriverAllocatable(Wire, frozen=True):
    """Number of volumes of a driver that a node can attach."""

    count: int | None = None


class CsiNodeDriver(Wire, frozen=True):
    """A driver on a node."""

    name: str = ""
    allocatable: DriverAllocatable | None = None


class AttachmentSource(Wire, frozen=True):
    """The volume that is attached."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Wire, frozen=True):
    """A volume, the node that it is attached to, and the driver that does so."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Wire, frozen=True):
    """A volume that is attached to a node, or is to be."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class CsiNodeSpec(Wire, frozen=True):
    """The drivers of a node."""

    drivers: list[CsiNodeDriver] = []


class CsiNode(Wire, frozen=True):
    """Attachment limits of a node; named like the node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()
