"""Give one pod its devices on one node: template, partition, topology or plain order; several kinds jointly.

Pure: reads the node's ledger, returns grants, records nothing. DeviceError says why a node cannot serve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.devices.candidates import (
    DeviceCandidate,
    DeviceError,
    DevicePreferences,
    DeviceStrategy,
    find_candidates,
)
from scheduler.devices.inventory import Grant, NodeDevices
from scheduler.devices.partition import PartitionTable, choose_partition
from scheduler.devices.request import DeviceDemand, DeviceKind
from scheduler.devices.template import Template, applies, smallest_cover
from scheduler.devices.topology import choose_near


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Partition constraints of a node for this pod."""

    table: PartitionTable | None = None
    honor: bool = False
    """Only listed partitions may be given (node policy Honor)."""
    best_only: bool = False
    """Only partitions of the best allocation score (pod policy Restricted)."""
    bandwidth: int = 0
    """Least ring bandwidth that the pod accepts."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Everything a pod asks of devices, node-specific rules included."""

    demands: Mapping[DeviceKind, DeviceDemand]
    preferences: Mapping[DeviceKind, DevicePreferences] = field(default_factory=dict)
    joint: tuple[DeviceKind, ...] = ()
    """Kinds to be given together, the leading one first."""
    same_pcie: bool = False
    """The joint kinds must use the same PCIe switches."""
    partition: PartitionRule = field(default_factory=PartitionRule)
    templates: tuple[Template, ...] = ()
    """Shapes in which the node's cards are shared; empty for free shares."""
    strategy: DeviceStrategy = DeviceStrategy.LEAST_ALLOCATED
    by_topology: bool = True
    """False takes devices in plain order (the caller has chosen minors itself)."""

    def preferences_for(self, kind: DeviceKind) -> DevicePreferences:
        """Return the preferences about devices of one kind."""
        return self.preferences.get(kind, DevicePreferences())


def allocate(node: NodeDevices, request: DeviceRequest) -> list[Grant]:
    """Grants for every demanded kind. Raises DeviceError when one cannot be served."""
    request, template = _shaped(request)
    together = [kind for kind in request.joint if kind in request.demands]
    grants = _joint(node, request, together) if len(together) > 1 else []
    alone = [kind for kind in request.demands if len(together) < 2 or kind not in together]
    for kind in alone:
        grants += _grants(kind, choose(node, request, kind))
    if template:
        grants = [replace(grant, template=template) if grant.kind is DeviceKind.GPU else grant for grant in grants]
    return grants


def _shaped(request: DeviceRequest) -> tuple[DeviceRequest, str]:
    """The request with the GPU share replaced by the template that covers it, and its name."""
    demand = request.demands.get(DeviceKind.GPU)
    if demand is None or not applies(request.templates, demand):
        return request, ""
    template = smallest_cover(request.templates, demand.each)
    if template is None:
        raise DeviceError("node(s) no GPU share template covers the request")
    shaped = replace(demand, each=dict(template.amounts))
    return replace(request, demands={**request.demands, DeviceKind.GPU: shaped}), template.name


def choose(node: NodeDevices, request: DeviceRequest, kind: DeviceKind) -> list[DeviceCandidate]:
    """Devices of one kind for the pod. Raises DeviceError."""
    demand, preferences = request.demands[kind], request.preferences_for(kind)
    found = find_candidates(node, demand, preferences, request.strategy)
    if preferences.apply_for_all:
        matching = find_candidates(node, replace(demand, each={}), preferences, request.strategy)
        if not found or len(found) < len(matching):
            raise DeviceError(f"Insufficient {kind} devices: not every matching one has room")
        return found
    if len(found) < demand.count:
        raise DeviceError(f"Insufficient {kind} devices")
    if kind is DeviceKind.GPU:
        chosen = _from_partition(node, request, demand, found)
        if chosen is not None:
            return chosen
    if kind is DeviceKind.GPU and request.by_topology and not preferences.first:
        return choose_near(node, demand, found, preferences.scope)
    if preferences.scope:
        return choose_near(node, demand, found, preferences.scope)
    return found[: demand.count]


def _from_partition(
    node: NodeDevices, request: DeviceRequest, demand: DeviceDemand, found: Sequence[DeviceCandidate]
) -> list[DeviceCandidate] | None:
    """The devices of the best partition; None where partitions do not bind and another allocator may try."""
    rule = request.partition
    if demand.shared or (rule.table is None and not rule.honor):
        return None
    if not rule.table or demand.count not in rule.table:
        if rule.honor:
            raise DeviceError(f"no GPU partition of {demand.count} listed")
        return None
    free = {candidate.device.minor: candidate for candidate in found if node.idle(candidate.device)}
    partition = choose_partition(rule.table, demand.count, free, bandwidth=rule.bandwidth, best_only=rule.best_only)
    if partition is not None:
        return [free[minor] for minor in partition.minors]
    if rule.honor or rule.best_only or rule.bandwidth:
        raise DeviceError(f"no free GPU partition of {demand.count}")
    return None


def _grants(kind: DeviceKind, chosen: Sequence[DeviceCandidate]) -> list[Grant]:
    return [
        Grant(kind, candidate.device.minor, candidate.amounts, candidate.ports)
        for candidate in sorted(chosen, key=lambda candidate: candidate.device.minor)
    ]


def _joint(node: NodeDevices, request: DeviceRequest, kinds: Sequence[DeviceKind]) -> list[Grant]:
    """The leading kind first, the others on its PCIe switches in turn. Raises DeviceError."""
    lead, others = kinds[0], kinds[1:]
    leading = choose(_narrowed(node, request, kinds) if request.same_pcie else node, request, lead)
    switches = list(dict.fromkeys(candidate.device.pcie for candidate in leading))
    grants = _grants(lead, leading)
    for kind in others:
        grants += _grants(kind, _beside(node, request, kind, switches))
    return grants


def _narrowed(node: NodeDevices, request: DeviceRequest, kinds: Sequence[DeviceKind]) -> NodeDevices:
    """The node without leading devices on switches where another joint kind has no room."""
    roomy: set[str] | None = None
    for kind in kinds[1:]:
        found = find_candidates(node, request.demands[kind], request.preferences_for(kind), request.strategy)
        here = {candidate.device.pcie for candidate in found}
        roomy = here if roomy is None else roomy & here
    return node.only(kinds[0], [d.minor for d in node.of_kind(kinds[0]) if d.pcie in (roomy or set())])


def _beside(
    node: NodeDevices, request: DeviceRequest, kind: DeviceKind, switches: Sequence[str]
) -> list[DeviceCandidate]:
    """Devices of `kind`, one per switch in turn; with `same_pcie` at least one on each and none elsewhere."""
    demand = request.demands[kind]
    found = find_candidates(node, demand, request.preferences_for(kind), request.strategy)
    by_switch = {switch: [c for c in found if c.device.pcie == switch] for switch in switches}
    count = max(demand.count, len(switches)) if request.same_pcie else demand.count
    chosen: list[DeviceCandidate] = []
    while len(chosen) < count and any(by_switch.values()):
        for remaining in by_switch.values():
            if remaining and len(chosen) < count:
                chosen.append(remaining.pop(0))
    if request.same_pcie:
        if len(chosen) < count or {candidate.device.pcie for candidate in chosen} != set(switches):
            raise DeviceError(f"node(s) Joint-Allocate rules violation: {kind} not on the same PCIe")
        return chosen
    chosen += [candidate for candidate in found if candidate not in chosen][: count - len(chosen)]
    if len(chosen) < count:
        raise DeviceError(f"Insufficient {kind} devices")
    return chosen
