"""The devices of one node and who holds how much of each; totals, use and free amounts always add up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api.kube.device import DeviceInfo, GpuPartition, VirtualFunction
from api.kube.resources import parse_quantity
from api.protocol import GPU_MEMORY, GPU_MEMORY_RATIO
from scheduler.devices.request import WHOLE_PERCENT, DeviceKind

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class VirtualPort:
    """A virtual function of a NIC with the labels of its group."""

    minor: int
    bus_id: str
    labels: Mapping[str, str] = field(default_factory=dict)


def port_key(port: VirtualPort | VirtualFunction) -> str | int:
    """What tells the virtual functions of a NIC apart: the bus id, since some agents give all the minor -1."""
    return port.bus_id or port.minor


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One device as the allocator sees it."""

    kind: DeviceKind
    minor: int
    total: Amounts
    """Amounts by resource name; empty while the device is unhealthy."""
    id: str = ""
    numa_node: int = -1
    pcie: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[VirtualPort, ...] = ()

    @classmethod
    def of(cls, info: DeviceInfo) -> "NodeDevice":
        """The device described by one entry of a Device object. Raises ValueError for an unknown type."""
        place = info.topology
        total = {name: parse_quantity(amount) for name, amount in info.resources.items()}
        ports = [VirtualPort(port.minor, port.bus_id, group.labels) for group in info.vf_groups for port in group.vfs]
        return cls(
            DeviceKind(info.type),
            info.minor,
            total if info.health else {},
            info.id,
            place.node_id if place else -1,
            place.pcie_id if place else "",
            info.labels,
            tuple(sorted(ports, key=lambda port: (port.bus_id, port.minor))),
        )

    def completed(self, each: Amounts) -> dict[str, int]:
        """`each` with GPU memory both in bytes and in percent of this device."""
        memory = self.total.get(GPU_MEMORY, 0)
        amounts = dict(each)
        if memory and GPU_MEMORY in each and GPU_MEMORY_RATIO not in each:
            amounts[GPU_MEMORY_RATIO] = each[GPU_MEMORY] * WHOLE_PERCENT // memory
        elif memory and GPU_MEMORY_RATIO in each and GPU_MEMORY not in each:
            amounts[GPU_MEMORY] = each[GPU_MEMORY_RATIO] * memory // WHOLE_PERCENT
        return amounts


@dataclass(frozen=True, slots=True)
class Grant:
    """One pod's share of one device."""

    kind: DeviceKind
    minor: int
    amounts: Amounts
    ports: tuple[VirtualFunction, ...] = ()
    template: str = ""
    """Name of the vendor's share template, where one applies."""


class OverCommitError(ValueError):
    """A grant would exceed what a device has; nothing was recorded."""


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices that one pod holds; `within` names the reservation (by the UID of its stand-in) that it draws from."""

    grants: tuple[Grant, ...]
    within: str = ""


class NodeDevices:
    """Inventory and ledger of one node. The only state; changed by `refit`, `hold` and `release` alone.

    A pod that draws from a reservation uses what the reservation holds: the two count once.
    """

    def __init__(self, devices: Iterable[NodeDevice], partitions: Mapping[int, tuple[GpuPartition, ...]] | None = None):
        self.devices: dict[DeviceKind, dict[int, NodeDevice]] = {}
        self.partitions = partitions
        self.holders: dict[str, PodDevices] = {}
        self._used: dict[tuple[DeviceKind, int], dict[str, int]] = {}
        self.refit(devices)

    def refit(self, devices: Iterable[NodeDevice]) -> None:
        """Replace the inventory (a Device object changed); what pods hold stays held."""
        self.devices = {}
        for device in sorted(devices, key=lambda device: device.minor):
            self.devices.setdefault(device.kind, {})[device.minor] = device

    def of_kind(self, kind: DeviceKind) -> list[NodeDevice]:
        """Devices of one kind by ascending minor."""
        return list(self.devices.get(kind, {}).values())

    def used(self, device: NodeDevice) -> Amounts:
        """Amounts of the device that pods hold."""
        return self._used.get((device.kind, device.minor), {})

    def free(self, device: NodeDevice) -> dict[str, int]:
        """Amounts left of the device by resource, never below zero; empty while it is unhealthy."""
        used = self.used(device)
        return {name: max(0, amount - used.get(name, 0)) for name, amount in device.total.items()}

    def idle(self, device: NodeDevice) -> bool:
        """Return whether the device is healthy and no pod holds any of it."""
        return bool(device.total) and not any(self.used(device).values())

    def allocated_ports(self, device: NodeDevice) -> frozenset[str | int]:
        """Keys (`port_key`) of the device's virtual functions that pods hold."""
        return frozenset(
            port_key(port)
            for holder in self.holders.values()
            for grant in holder.grants
            if (grant.kind, grant.minor) == (device.kind, device.minor)
            for port in grant.ports
        )

    def only(self, kind: DeviceKind, minors: Iterable[int]) -> "NodeDevices":
        """The same node reduced to some devices of one kind; for asking, not for recording."""
        chosen = set(minors)
        view = self.without(())
        view.devices[kind] = {minor: d for minor, d in self.devices.get(kind, {}).items() if minor in chosen}
        return view

    def without(self, uids: Iterable[str]) -> "NodeDevices":
        """The same node as if some pods or reservations were gone; for asking, not for recording."""
        gone = set(uids)
        view = NodeDevices((), self.partitions)
        view.devices = dict(self.devices)
        view.holders = {uid: holder for uid, holder in self.holders.items() if uid not in gone}
        view._used = _count(view.holders) if gone else self._used
        return view

    def hold(self, uid: str, grants: Iterable[Grant], *, within: str = "", checked: bool = True) -> None:
        """Record what pod `uid` holds; replaces what it held.

        Raises OverCommitError, with nothing changed, when a device would be exceeded. `checked` False records a
        fact found on a running pod even if the devices have shrunk meanwhile.
        """
        holders = self.holders | {uid: PodDevices(tuple(grants), within)}
        used = _count(holders)
        if checked and (excess := self._excess(used, holders[uid].grants)):
            raise OverCommitError(excess)
        self.holders, self._used = holders, used

    def release(self, uid: str) -> tuple[Grant, ...]:
        """Forget what pod `uid` holds and return it; empty when it holds nothing."""
        holder = self.holders.pop(uid, None)
        if holder is None:
            return ()
        self._used = _count(self.holders)
        return holder.grants

    def _excess(self, used: Mapping[tuple[DeviceKind, int], Amounts], grants: Iterable[Grant]) -> str:
        for grant in grants:
            device = self.devices.get(grant.kind, {}).get(grant.minor)
            for name in grant.amounts:
                have = device.total.get(name, 0) if device else 0
                if used[grant.kind, grant.minor][name] > have:
                    return f"{grant.kind} {grant.minor}: {used[grant.kind, grant.minor][name]} of {have} {name}"
        return ""


def _count(holders: Mapping[str, PodDevices]) -> dict[tuple[DeviceKind, int], dict[str, int]]:
    """Use by device: every pod's own, and for each reservation the larger of it and what is drawn from it."""
    used: dict[tuple[DeviceKind, int], dict[str, int]] = {}
    drawn: dict[str, dict[tuple[DeviceKind, int, str], int]] = {}
    for holder in holders.values():
        reserved = drawn.setdefault(holder.within, {}) if holder.within in holders else None
        for grant in holder.grants:
            amounts = used.setdefault((grant.kind, grant.minor), {})
            for name, amount in grant.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
                if reserved is not None:
                    key = (grant.kind, grant.minor, name)
                    reserved[key] = reserved.get(key, 0) + amount
    for uid, reserved in drawn.items():
        for grant in holders[uid].grants:
            for name, amount in grant.amounts.items():
                overlap = min(amount, reserved.get((grant.kind, grant.minor, name), 0))
                used[grant.kind, grant.minor][name] -= overlap
    return used
