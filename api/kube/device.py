"""Devices of a node on the wire: the Device resource that a node's agent writes, and its allocations to pods.

The Device object has its node's name. A pod's share stands in its annotation `device-allocated` as JSON:
a map from device type to a list of `DeviceAllocation`.
"""

from typing import Any

import msgspec

from api.kube.meta import Condition, Labels, ObjectMeta, Quantity, Wire


class DeviceTopology(Wire, frozen=True, omit_defaults=False):
    """Location of a device; -1 and empty are unknown."""

    socket_id: int = msgspec.field(default=-1, name="socketID")
    node_id: int = msgspec.field(default=-1, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunction(Wire, frozen=True, omit_defaults=False):
    """One virtual function of a NIC."""

    minor: int = -1
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunctionGroup(Wire, frozen=True):
    """Virtual functions that share labels."""

    labels: Labels = {}
    vfs: list[VirtualFunction] = []


class DeviceInfo(Wire, frozen=True):
    """One device; `id` is its UUID (for a NIC its PCI address), `minor` its number from 0 within the type.

    Minor and health are always written: to Koordinator's own programs an absent minor is not 0.
    """

    type: str
    labels: Labels = {}
    id: str = ""
    minor: int = msgspec.field(default_factory=int)
    module_id: int | None = msgspec.field(default=None, name="moduleID")
    health: bool = msgspec.field(default_factory=bool)
    resources: dict[str, Quantity] = {}
    topology: DeviceTopology | None = None
    vf_groups: list[VirtualFunctionGroup] = []
    conditions: list[Condition] = []


class DeviceSpec(Wire, frozen=True):
    """All devices of the node."""

    devices: list[DeviceInfo] = []


class DeviceHolder(Wire, frozen=True):
    """One pod and the minors that it holds."""

    name: str = ""
    namespace: str = ""
    uuid: str = ""
    minors: list[int] = []


class DeviceTypeHolders(Wire, frozen=True):
    """The pods that hold devices of one type."""

    type: str = ""
    entries: list[DeviceHolder] = []


class DeviceStatus(Wire, frozen=True):
    """Devices that pods hold, as the scheduler may report them."""

    allocations: list[DeviceTypeHolders] = []


class Device(Wire, frozen=True):
    """scheduling.koordinator.sh/v1alpha1 Device, cluster-scoped, named like its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceSpec = DeviceSpec()
    status: DeviceStatus = DeviceStatus()


class DeviceAllocation(Wire, frozen=True):
    """Allocation of one device to a pod; quantities are percent, bytes or vendor units."""

    minor: int
    id: str = ""
    resources: dict[str, Quantity] = {}
    extension: dict[str, Any] = {}


DeviceAllocations = dict[str, list[DeviceAllocation]]
"""Device type to allocations: the payload of the annotation `device-allocated`."""


class DeviceHint(Wire, frozen=True):
    """A pod's request for devices of one type (annotation `device-allocate-hint`)."""

    selector: dict[str, Any] | None = None
    vf_selector: dict[str, Any] | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class JointAllocate(Wire, frozen=True):
    """Devices of several types to be given together; the first type leads (annotation `device-joint-allocate`)."""

    device_types: list[str] = []
    required_scope: str = ""


class PartitionSpec(Wire, frozen=True):
    """A pod's request for partitions (annotation `gpu-partition-spec`)."""

    allocate_policy: str = "BestEffort"
    ring_bus_bandwidth: Quantity = 0


class GpuPartition(Wire, frozen=True):
    """A set of GPUs that are well connected among themselves (annotation `gpu-partitions` of the Device)."""

    minors: list[int]
    gpu_link_type: str = ""
    ring_bus_bandwidth: Quantity = 0
    allocation_score: int = 0
