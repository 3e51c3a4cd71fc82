"""Choose several devices close to each other: on one PCIe switch, else one NUMA node, else the machine.

Of equal choices the one on ground already broken wins, so that whole switches and NUMA nodes stay empty for
those who need them whole.
"""

from collections.abc import Callable, Iterable, Sequence

from scheduler.devices.candidates import DeviceCandidate, DeviceError
from scheduler.devices.inventory import NodeDevices
from scheduler.devices.request import DeviceDemand

SCOPES = ("Node", "NUMANode", "PCIe", "Device")
"""From the widest to the narrowest."""

Place = Callable[[DeviceCandidate], object]


def choose_near(
    node: NodeDevices, demand: DeviceDemand, found: Sequence[DeviceCandidate], scope: str
) -> list[DeviceCandidate]:
    """`demand.count` of the candidates in the narrowest scope that holds them; `found` is in order of preference.

    Raises DeviceError when a required scope (see SCOPES) is narrower than what fits.
    """
    if len(found) < demand.count:
        raise DeviceError(f"Insufficient {demand.kind} devices")
    required = SCOPES.index(scope) if scope in SCOPES else 0
    for level in range(len(SCOPES) - 1, required - 1, -1):
        groups = [group for group in _groups(found, level) if len(group) >= demand.count]
        if groups:
            best = min(groups, key=lambda group: _preference(node, demand, group, found))
            return _tightest(best, demand.count, level)
    raise DeviceError(f"Insufficient topology scoped {demand.kind} devices: no {scope} holds {demand.count}")


def _groups(found: Iterable[DeviceCandidate], level: int) -> list[list[DeviceCandidate]]:
    groups: dict[object, list[DeviceCandidate]] = {}
    for candidate in found:
        groups.setdefault(_place(level)(candidate), []).append(candidate)
    return list(groups.values())


def _place(level: int) -> Place:
    """Identifier that devices of one scope share."""
    return (_machine, _numa_node, _switch, _minor)[level]


def _machine(_: DeviceCandidate) -> object:
    return 0


def _numa_node(candidate: DeviceCandidate) -> object:
    return candidate.device.numa_node


def _switch(candidate: DeviceCandidate) -> object:
    return candidate.device.numa_node, candidate.device.pcie


def _minor(candidate: DeviceCandidate) -> object:
    return candidate.device.minor


def _preference(
    node: NodeDevices, demand: DeviceDemand, group: Sequence[DeviceCandidate], found: Sequence[DeviceCandidate]
) -> tuple[int, ...]:
    """Smaller is better: more scopes around it already in use, fewer devices to spare, earlier in the preference."""
    used = [device for device in node.of_kind(demand.kind) if any(node.used(device).values())]
    around = 0
    for level in range(1, len(SCOPES)):
        place = _place(level)
        mine = {place(candidate) for candidate in group}
        around += any(place(DeviceCandidate(device, {}, 0)) in mine for device in used) and len(mine) == 1
    score = -max(candidate.score for candidate in group) if demand.shared else 0
    first = min(found.index(candidate) for candidate in group)
    if demand.shared:
        return score, -around, len(group), first
    return -around, len(group), first


def _tightest(group: Sequence[DeviceCandidate], count: int, level: int) -> list[DeviceCandidate]:
    """`count` of the group from as few narrower scopes as possible, leaving large remainders whole."""
    if level >= len(SCOPES) - 1 or len(group) == count:
        return list(group[:count])
    narrower = sorted(_groups(group, level + 1), key=len)
    covering = next((part for part in narrower if len(part) >= count), None)
    if covering is not None:
        return _tightest(covering, count, level + 1)
    largest = narrower[-1]
    rest = [candidate for candidate in group if candidate not in largest]
    return list(largest) + _tightest(rest, count - len(largest), level)
