"""Candidate devices of a node for one instance of a demand, in the order in which they are tried."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from api.kube.device import DeviceHint, VirtualFunction
from api.kube.meta import LabelSelector
from api.kube.selectors import label_selector_matches
from scheduler.devices.inventory import NodeDevice, NodeDevices, port_key
from scheduler.devices.request import WHOLE_PERCENT, DeviceDemand, DeviceKind, DeviceRequestError


class DeviceStrategy(StrEnum):
    """Order of use: the emptiest or the fullest devices that fit first."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


class DeviceError(Exception):
    """This node cannot serve the demand; the message is the reason given to the user."""


@dataclass(frozen=True, slots=True)
class DevicePreferences:
    """Constraints and order of the choice of devices of one kind on one node."""

    selector: LabelSelector | None = None
    port_selector: LabelSelector | None = None
    """Set when a virtual function must be given with the device."""
    apply_for_all: bool = False
    scope: str = ""
    """Required topology scope: Device, PCIe, NUMANode or Node; empty for none."""
    exclusive: str = ""
    """DeviceLevel or PCIeLevel: no other pod of this kind on the same device or PCIe switch."""
    first: tuple[int, ...] = ()
    """Minors to try first, in this order, such as those of the pod's reservation."""
    numa_mask: int = 0
    """NUMA nodes to stay on; 0 for any."""


@dataclass(frozen=True, slots=True)
class DeviceCandidate:
    """A device that can serve one instance, with the amounts it would give."""

    device: NodeDevice
    amounts: Mapping[str, int]
    score: int
    """0..100 by the strategy; higher is tried first."""
    ports: tuple[VirtualFunction, ...] = field(default=())


def read_hint(hint: DeviceHint | None, demand: DeviceDemand) -> tuple[DeviceDemand, DevicePreferences]:
    """Apply a pod's hint to a plain demand: the demand as the hint reads it, and its preferences.

    `RequestsAsCount` reads the amount as a number of devices, one unit of each (100 with exclusive policy
    DeviceLevel).
    """
    if hint is None:
        return demand, DevicePreferences()
    preferences = DevicePreferences(
        selector=_selector(hint.selector),
        port_selector=_selector(hint.vf_selector),
        apply_for_all=hint.allocate_strategy == "ApplyForAll",
        scope=hint.required_topology_scope,
        exclusive=hint.exclusive_policy,
    )
    if hint.allocate_strategy == "RequestsAsCount":
        (name, amount), *_ = demand.each.items()
        each = WHOLE_PERCENT if hint.exclusive_policy == "DeviceLevel" else 1
        demand = DeviceDemand(demand.kind, amount * demand.count, {name: each})
    return demand, preferences


def _selector(document: object) -> LabelSelector | None:
    try:
        return None if document is None else msgspec.convert(document, LabelSelector)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DeviceRequestError(f"a selector of the device hint cannot be read: {error}") from error


def find_candidates(
    node: NodeDevices, demand: DeviceDemand, preferences: DevicePreferences, strategy: DeviceStrategy
) -> list[DeviceCandidate]:
    """Devices that can serve one instance, best first: preferred minors, then score, then minor."""
    crowded = _crowded_switches(node, demand.kind) if preferences.exclusive == "PCIeLevel" else frozenset()
    found = []
    for device in node.of_kind(demand.kind):
        if not _wanted(device, preferences) or device.pcie in crowded:
            continue
        if preferences.exclusive == "DeviceLevel" and not node.idle(device):
            continue
        candidate = _candidate(node, device, demand, preferences, strategy)
        if candidate is not None:
            found.append(candidate)
    rank = {minor: position for position, minor in enumerate(preferences.first)}
    return sorted(found, key=lambda c: (rank.get(c.device.minor, len(rank)), -c.score, c.device.minor))


def _crowded_switches(node: NodeDevices, kind: DeviceKind) -> frozenset[str]:
    return frozenset(device.pcie for device in node.of_kind(kind) if any(node.used(device).values()))


def _wanted(device: NodeDevice, preferences: DevicePreferences) -> bool:
    if preferences.selector is not None and not label_selector_matches(preferences.selector, device.labels):
        return False
    return not preferences.numa_mask or device.numa_node < 0 or bool(preferences.numa_mask >> device.numa_node & 1)


def _candidate(
    node: NodeDevices,
    device: NodeDevice,
    demand: DeviceDemand,
    preferences: DevicePreferences,
    strategy: DeviceStrategy,
) -> DeviceCandidate | None:
    amounts = device.completed(demand.each)
    free = node.free(device)
    if not free or any(amount > free.get(name, 0) for name, amount in amounts.items()):
        return None
    ports: tuple[VirtualFunction, ...] = ()
    if preferences.port_selector is not None:
        allocated = node.allocated_ports(device)
        open_ports = [
            port
            for port in device.ports
            if port_key(port) not in allocated and label_selector_matches(preferences.port_selector, port.labels)
        ]
        if not open_ports:
            return None
        ports = (VirtualFunction(minor=open_ports[0].minor, bus_id=open_ports[0].bus_id),)
    return DeviceCandidate(device, amounts, _score(free, device.total, amounts, strategy), ports)


def _score(
    free: Mapping[str, int], total: Mapping[str, int], amounts: Mapping[str, int], strategy: DeviceStrategy
) -> int:
    """Mean over the demanded resources of what is left (or used) after the grant, percent of the device."""
    parts = []
    for name, amount in amounts.items():
        if total.get(name, 0) > 0:
            left = (free[name] - amount) * 100 // total[name]
            parts.append(left if strategy is DeviceStrategy.LEAST_ALLOCATED else 100 - left)
    return sum(parts) // len(parts) if parts else 0
