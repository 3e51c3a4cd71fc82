"""NUMA hints of devices: which sets of NUMA nodes could serve a pod's devices, and which one serves them best."""

from dataclasses import replace

from scheduler.devices.allocator import DeviceRequest, allocate
from scheduler.devices.candidates import DeviceError
from scheduler.devices.inventory import NodeDevices
from scheduler.devices.request import DeviceDemand, DeviceKind
from scheduler.numa.hints import NumaHint, nodes_of

BEST_SCORE = 500
"""Score of the set that the unaligned allocation would use."""


def device_hints(node: NodeDevices, request: DeviceRequest) -> list[list[NumaHint]]:
    """Hints for each demanded kind whose devices report NUMA nodes; an empty list of hints cannot be served."""
    providers = []
    for kind, demand in request.demands.items():
        if any(device.numa_node >= 0 for device in node.of_kind(kind)):
            providers.append(_hints(node, request, kind, demand))
    return providers


def _hints(node: NodeDevices, request: DeviceRequest, kind: DeviceKind, demand: DeviceDemand) -> list[NumaHint]:
    places = {device.numa_node for device in node.of_kind(kind) if device.numa_node >= 0}
    idle = node.without(node.holders)
    best = _mask(node, request, kind)
    smallest, hints = 0, []
    masks = range(1, 1 << (max(places) + 1))
    for mask in sorted(masks, key=lambda mask: (mask.bit_count(), mask)):
        if not set(nodes_of(mask)) <= places or not _serves(idle, request, kind, demand, mask):
            continue
        smallest = smallest or mask.bit_count()
        if _serves(node, request, kind, demand, mask):
            hints.append(NumaHint(mask, mask.bit_count() == smallest, BEST_SCORE if mask == best else 0))
    return hints


def _single(request: DeviceRequest, kind: DeviceKind, demand: DeviceDemand, mask: int) -> DeviceRequest:
    narrowed = {kind: replace(request.preferences_for(kind), numa_mask=mask)}
    return replace(request, demands={kind: demand}, preferences=narrowed, joint=())


def _serves(node: NodeDevices, request: DeviceRequest, kind: DeviceKind, demand: DeviceDemand, mask: int) -> bool:
    try:
        allocate(node, _single(request, kind, demand, mask))
    except DeviceError:
        return False
    return True


def _mask(node: NodeDevices, request: DeviceRequest, kind: DeviceKind) -> int:
    """NUMA nodes that the unaligned allocation of one kind uses; 0 when it fails."""
    try:
        grants = allocate(node, _single(request, kind, request.demands[kind], 0))
    except DeviceError:
        return 0
    places = (node.devices[kind][grant.minor].numa_node for grant in grants)
    return sum(1 << place for place in set(places) if place >= 0)
