"""CPU topology of this host (core, socket, NUMA node), and its disks."""

import re
from dataclasses import dataclass

from api.cpuset import parse_cpuset
from koordlet.host.files import HostTree

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_NO_DISKS = re.compile(r"^(ram|zram|sr|fd)")


@dataclass(frozen=True, slots=True)
class CpuPlace:
    """One hardware thread; all numbers are machine-wide."""

    id: int
    core: int
    """The lowest CPU of its core: siblings share it."""
    socket: int
    node: int


def cpu_places(tree: HostTree) -> tuple[CpuPlace, ...]:
    """Every online CPU in the order of its number; without topology files each CPU is a core of its own."""
    online = sorted(parse_cpuset(tree.text(f"{_CPUS}/online") or ""))
    nodes = _nodes(tree)
    return tuple(
        CpuPlace(
            cpu,
            min(parse_cpuset(tree.text(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list") or str(cpu))),
            int(tree.text(f"{_CPUS}/cpu{cpu}/topology/physical_package_id") or 0),
            nodes.get(cpu, 0),
        )
        for cpu in online
    )


def disks(tree: HostTree) -> tuple[str, ...]:
    """Block devices of any size as major:minor, in the order of their names; unused loop devices have none."""
    return tuple(number for _name, number in _disks(tree))


def bfq_disks(tree: HostTree) -> frozenset[str]:
    """Disks with the bfq scheduler."""
    found = _disks(tree)
    return frozenset(
        number for name, number in found if "[bfq]" in (tree.text(f"/sys/block/{name}/queue/scheduler") or "")
    )


def _disks(tree: HostTree) -> tuple[tuple[str, str], ...]:
    folder = tree.path("/sys/block")
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    used = [
        name
        for name in names
        if not _NO_DISKS.match(name) and (tree.text(f"/sys/block/{name}/size") or "0").strip() != "0"
    ]
    return tuple((name, number.strip()) for name in used if (number := tree.text(f"/sys/block/{name}/dev")))


def _nodes(tree: HostTree) -> dict[int, int]:
    online = parse_cpuset(tree.text(f"{_NODES}/online") or "")
    return {cpu: node for node in online for cpu in parse_cpuset(tree.text(f"{_NODES}/node{node}/cpulist") or "")}
