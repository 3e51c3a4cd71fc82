"""The devices of all nodes: one ledger per node, mirrored into columns after every change."""

from collections.abc import Iterable, Mapping
from typing import Any

from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.device import Device, GpuPartition
from scheduler.cluster_state.columns import Row
from scheduler.devices.columns import DeviceColumns
from scheduler.devices.inventory import NodeDevice, NodeDevices
from scheduler.devices.payload import PodDeviceRequest, clamped, decode_grants
from scheduler.devices.request import DeviceKind

ANNOTATION_GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"


class DeviceLedger:
    """Ledgers by row of the snapshot. What a pod holds may be known before the node's devices are."""

    def __init__(self) -> None:
        self.columns = DeviceColumns()
        self.nodes: dict[Row, NodeDevices] = {}

    def refit(self, row: Row, device: Device | None) -> None:
        """Take over what a node reports; None takes its devices away and keeps who holds what."""
        node = self.nodes.setdefault(row, NodeDevices(()))
        infos = device.spec.devices if device else []
        node.refit(NodeDevice.of(info) for info in infos if info.type in list(DeviceKind))
        node.partitions = read_partitions(device.metadata.annotations) if device else None
        self._mirror(row)

    def forget(self, row: Row) -> None:
        """The row holds no node any more."""
        self.nodes.pop(row, None)
        self.columns.set_row(row, None)

    def charge(self, row: Row, uid: str, annotation: str, request: PodDeviceRequest, within: str = "") -> None:
        """Record what a pod's annotation says it has, as far as it asked for that; nothing when it is unreadable."""
        try:
            grants = decode_grants(annotation)
        except ValueError:
            return
        node = self.nodes.setdefault(row, NodeDevices(()))
        node.hold(uid, clamped(grants, request, node), within=within, checked=False)
        self._mirror(row)

    def discharge(self, row: Row, uid: str) -> None:
        """Give a pod's devices back; unknown pods are ignored."""
        node = self.nodes.get(row)
        if node is not None and uid in node.holders:
            node.release(uid)
            self._mirror(row)

    def view(self, row: Row, holders: Iterable[str]) -> NodeDevices:
        """The row's devices as seen by a pod that may use what `holders` (reservations) hold."""
        gone = list(holders)
        node = self.nodes[row]
        return node.without(gone) if gone else node

    def reserved_minors(self, row: Row, holders: Iterable[str]) -> dict[DeviceKind, tuple[int, ...]]:
        """Minors that the reservations `holders` hold, by kind."""
        minors: dict[DeviceKind, tuple[int, ...]] = {}
        for uid in holders:
            holder = self.nodes[row].holders.get(uid)
            for grant in holder.grants if holder else ():
                minors[grant.kind] = (*minors.get(grant.kind, ()), grant.minor)
        return minors

    def _mirror(self, row: Row) -> None:
        node = self.nodes[row]
        self.columns.set_row(row, node if node.devices else None)


def summary(node: NodeDevices) -> dict[str, Any]:
    """Totals, use and holders of a node's devices, for people to read."""
    devices = [device for kind in node.devices for device in node.of_kind(kind)]
    return {
        "devices": [
            {
                "type": device.kind,
                "minor": device.minor,
                "total": dict(device.total),
                "used": dict(node.used(device)),
                "free": node.free(device),
            }
            for device in devices
        ],
        "allocateSet": {
            uid: [{"type": g.kind, "minor": g.minor, "resources": dict(g.amounts)} for g in holder.grants]
            for uid, holder in node.holders.items()
        },
    }


def read_partitions(annotations: Mapping[str, str]) -> dict[int, tuple[GpuPartition, ...]] | None:
    """The partition table of a Device object; None when it has none or an unreadable one."""
    text = annotations.get(ANNOTATION_GPU_PARTITIONS)
    if not text:
        return None
    try:
        table = decode_annotation(text, dict[int, list[GpuPartition]])
    except AnnotationError:
        return None
    return {size: tuple(partitions) for size, partitions in table.items()}
