"""Device annotations to values and back: requests of a pod, its allocation, the reservation it draws from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.device import (
    DeviceAllocation,
    DeviceAllocations,
    DeviceHint,
    JointAllocate,
    PartitionSpec,
    VirtualFunction,
)
from api.kube.resources import parse_quantity
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATE_HINT,
    ANNOTATION_DEVICE_JOINT_ALLOCATE,
    ANNOTATION_GPU_PARTITION_SPEC,
)
from scheduler.devices.candidates import DevicePreferences, read_hint
from scheduler.devices.inventory import Grant, NodeDevices
from scheduler.devices.request import DeviceDemand, DeviceKind, DeviceRequestError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodDeviceRequest:
    """Device request of a pod: demands, and what its annotations ask beside the amounts."""

    demands: Mapping[DeviceKind, DeviceDemand]
    """The pod's demands as its hints read them."""
    preferences: Mapping[DeviceKind, DevicePreferences]
    joint: tuple[DeviceKind, ...] = ()
    same_pcie: bool = False
    partition: PartitionSpec | None = None

    @property
    def plain(self) -> bool:
        """True when counting free devices decides whether a node fits (unless the node has rules itself)."""
        return not self.preferences and len(self.joint) < 2 and self.partition is None


def _decode(annotations: Mapping[str, str], key: str, kind: type[T]) -> T | None:
    text = annotations.get(key)
    if not text:
        return None
    try:
        return decode_annotation(text, kind)
    except AnnotationError as error:
        raise DeviceRequestError(f"annotation {key}: {error}") from error


def read_request(annotations: Mapping[str, str], demands: Mapping[DeviceKind, DeviceDemand]) -> PodDeviceRequest:
    """Read the device request of a pod. Raises DeviceRequestError naming an annotation that cannot be read."""
    hints = _decode(annotations, ANNOTATION_DEVICE_ALLOCATE_HINT, dict[str, DeviceHint]) or {}
    joint = _decode(annotations, ANNOTATION_DEVICE_JOINT_ALLOCATE, JointAllocate) or JointAllocate()
    read = {kind: read_hint(hints.get(kind), demand) for kind, demand in demands.items()}
    known = [DeviceKind(name) for name in joint.device_types if name in list(DeviceKind)]
    return PodDeviceRequest(
        demands={kind: demand for kind, (demand, _) in read.items()},
        preferences={kind: preferences for kind, (_, preferences) in read.items() if kind in hints},
        joint=tuple(known),
        same_pcie=joint.required_scope == "SamePCIe",
        partition=_decode(annotations, ANNOTATION_GPU_PARTITION_SPEC, PartitionSpec),
    )


def encode_grants(grants: Iterable[Grant], node: NodeDevices) -> str:
    """The annotation `device-allocated` for these grants."""
    payload: DeviceAllocations = {}
    for grant in grants:
        device = node.devices[grant.kind][grant.minor]
        extension: dict[str, object] = {}
        if grant.ports:
            extension["vfs"] = [msgspec.to_builtins(port) for port in grant.ports]
        if grant.template:
            extension["gpuSharedResourceTemplate"] = grant.template
        amounts = {name: str(amount) for name, amount in grant.amounts.items()}
        allocation = DeviceAllocation(minor=grant.minor, id=device.id, resources=dict(amounts), extension=extension)
        payload.setdefault(grant.kind, []).append(allocation)
    return msgspec.json.encode(payload).decode()


def decode_grants(text: str) -> list[Grant]:
    """The grants in an annotation `device-allocated`; kinds this scheduler does not know are passed over.

    Raises ValueError when the text cannot be read.
    """
    payload = decode_annotation(text, DeviceAllocations)
    grants = [
        Grant(
            DeviceKind(kind),
            allocation.minor,
            {name: parse_quantity(amount) for name, amount in allocation.resources.items()},
            _ports(allocation.extension.get("vfs")),
            str(allocation.extension.get("gpuSharedResourceTemplate", "")),
        )
        for kind, allocations in payload.items()
        if kind in list(DeviceKind)
        for allocation in allocations
    ]
    if any(min(grant.amounts.values(), default=0) < 0 for grant in grants):
        raise AnnotationError("an amount is negative")
    return grants


def clamped(grants: Iterable[Grant], request: PodDeviceRequest, node: NodeDevices) -> list[Grant]:
    """The grants as far as the pod asked for them: no further kind, no further device, no more of each.

    A vendor's template gives its own shape, which is taken as it is on one device.
    """
    kept: dict[DeviceKind, list[Grant]] = {}
    for grant in grants:
        demand = request.demands.get(grant.kind)
        if demand is None:
            continue
        same = kept.setdefault(grant.kind, [])
        preferences = request.preferences.get(grant.kind)
        everywhere = preferences is not None and preferences.apply_for_all
        if grant.minor in {other.minor for other in same} or (len(same) >= demand.count and not everywhere):
            continue
        device = node.devices.get(grant.kind, {}).get(grant.minor)
        limits = demand.each if device is None else device.completed(demand.each)
        if grant.template:
            limits = grant.amounts
        amounts = {name: min(amount, limits[name]) for name, amount in grant.amounts.items() if name in limits}
        same.append(replace(grant, amounts=amounts))
    return [grant for same in kept.values() for grant in same]


def _ports(listed: object) -> tuple[VirtualFunction, ...]:
    try:
        return tuple(msgspec.convert(listed or [], list[VirtualFunction]))
    except (msgspec.ValidationError, RecursionError) as error:
        raise AnnotationError(f"vfs: {error}") from error


def drawn_from(text: str | None) -> str:
    """UID of the reservation named by an annotation `reservation-allocated`; empty when there is none."""
    if not text:
        return ""
    try:
        return decode_annotation(text, dict[str, str]).get("uid", "")
    except AnnotationError:
        return ""
