"""Dynamic resource allocation, resource.k8s.io/v1: claims, the slices that list devices, and classes of devices.

Requests, constraints and devices stay plain documents: their reader refuses what it does not know, which a decoder that
passes over unknown fields would take for a plainer request.
"""

from typing import Any

import msgspec

from api.kube.meta import ObjectMeta, Wire
from api.kube.selectors import NodeSelector


class DeviceClaim(Wire, frozen=True):
    """Requests for devices, each other's constraints, and parameters for their drivers."""

    requests: list[dict[str, Any]] = []
    constraints: list[dict[str, Any]] = []
    config: list[dict[str, Any]] = []


class ResourceClaimSpec(Wire, frozen=True):
    """What a claim asks for."""

    devices: DeviceClaim = DeviceClaim()


class DeviceResult(Wire, frozen=True):
    """A device that a request was given."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str = msgspec.field(default="", name="shareID")
    """Of one use of a device that several claims may use."""
    consumed_capacity: dict[str, str | int] = {}


class DeviceResults(Wire, frozen=True):
    """Devices that a claim was given."""

    results: list[DeviceResult] = []


class Allocation(Wire, frozen=True):
    """Devices of a claim, and the nodes that reach them (None: all)."""

    devices: DeviceResults = DeviceResults()
    node_selector: NodeSelector | None = None


class Consumer(Wire, frozen=True):
    """A pod, or something else, that may use a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Wire, frozen=True):
    """Allocation of a claim and its consumers."""

    allocation: Allocation | None = None
    reserved_for: list[Consumer] = []


class ResourceClaim(Wire, frozen=True):
    """A claim of devices, for one pod or for several."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DevicePool(Wire, frozen=True):
    """Pool of a slice; only slices of its newest generation count, and only once all of them are there."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Wire, frozen=True):
    """Devices of a driver, on one node, on selected ones or on all."""

    driver: str = ""
    pool: DevicePool = DevicePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[dict[str, Any]] = []
    shared_counters: list[dict[str, Any]] = []


class ResourceSlice(Wire, frozen=True):
    """A part of a pool of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceClassSpec(Wire, frozen=True):
    """Selectors and parameters that every request of the class has."""

    selectors: list[dict[str, Any]] = []
    config: list[dict[str, Any]] = []


class DeviceClass(Wire, frozen=True):
    """A kind of devices that may be asked for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
