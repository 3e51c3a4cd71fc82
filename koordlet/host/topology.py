"""CPU topology of this host (core, socket, NUMA node), and its disks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from api.cpuset import parse_cpuset
from koordlet.host.files import HostTree

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_MEM_TOTAL = re.compile(r"MemTotal:\s*(\d+) kB")
_HUGE_PAGES = re.compile(r"^hugepages-(\d+)kB$")
_MAX_CACHES = 10
_NO_DISKS = re.compile(r"^(ram|zram|sr|fd)")


@dataclass(frozen=True, slots=True)
class CpuPlace:
    """One hardware thread; all numbers are machine-wide."""

    id: int
    core: int
    """The lowest CPU of its core: siblings share it."""
    socket: int
    node: int


@dataclass(frozen=True, slots=True)
class NumaMemory:
    """Memory of one NUMA node."""

    total_bytes: int
    """With huge pages."""
    huge_pages: Mapping[int, int]
    """Size of a page to the bytes set aside in pages of this size; sizes without any are left out."""


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


@dataclass(frozen=True, slots=True)
class CpuCaches:
    """Caches of one hardware thread; CPUs with the same id share the cache, -1 is none or not known."""

    l1: int = -1
    l2: int = -1
    l3: int = -1
    """Id by which resctrl names the cache."""


def cpu_caches(tree: HostTree) -> dict[int, CpuCaches]:
    """Caches of every online CPU: the kernel's ids, else the lowest CPU that shares the cache."""
    found = {}
    for cpu in sorted(parse_cpuset(tree.text(f"{_CPUS}/online") or "")):
        levels: dict[int, int] = {}
        for index in range(_MAX_CACHES):
            folder = f"{_CPUS}/cpu{cpu}/cache/index{index}"
            level = (tree.text(f"{folder}/level") or "").strip()
            if not level.isdecimal():
                break
            if (tree.text(f"{folder}/type") or "").strip() != "Instruction":
                levels[int(level)] = _cache_id(tree, folder, cpu)
        found[cpu] = CpuCaches(levels.get(1, -1), levels.get(2, -1), levels.get(3, -1))
    return found


def numa_memory(tree: HostTree) -> dict[int, NumaMemory]:
    """Memory of each NUMA node; one node with all memory where the kernel has no NUMA files."""
    found = {}
    for node in sorted(parse_cpuset(tree.text(f"{_NODES}/online") or "")):
        total = _MEM_TOTAL.search(tree.text(f"{_NODES}/node{node}/meminfo") or "")
        if total:
            found[node] = NumaMemory(int(total[1]) * 1024, _huge_pages(tree, f"{_NODES}/node{node}/hugepages"))
    total = _MEM_TOTAL.search(tree.text("/proc/meminfo") or "")
    if not found and total:
        found[0] = NumaMemory(int(total[1]) * 1024, _huge_pages(tree, "/sys/kernel/mm/hugepages"))
    return found


def smt_active(tree: HostTree) -> bool:
    """Whether cores run more than one hardware thread at present."""
    told = (tree.text(f"{_CPUS}/smt/active") or "").strip()
    if told:
        return told == "1"
    places = cpu_places(tree)
    return len({place.core for place in places}) < len(places)


def turbo_active(tree: HostTree) -> bool:
    """Whether the CPUs may run faster than their base frequency; False where no driver says so."""
    if no_turbo := (tree.text(f"{_CPUS}/intel_pstate/no_turbo") or "").strip():
        return no_turbo == "0"
    return (tree.text(f"{_CPUS}/cpufreq/boost") or "").strip() == "1"


def disks(tree: HostTree) -> tuple[str, ...]:
    """Block devices of any size as major:minor, in the order of their names; unused loop devices have none."""
    return tuple(number for _name, number in _disks(tree))


def disk_names(tree: HostTree) -> dict[str, str]:
    """Block devices as they may be called (`vda`, `/dev/vda`, `/dev/mapper/vg-lv`, `8:0`) to major:minor."""
    found: dict[str, str] = {}
    for name, number in _disks(tree):
        mapped = (tree.text(f"/sys/block/{name}/dm/name") or "").strip()
        names = (number, name, f"/dev/{name}", *((mapped, f"/dev/mapper/{mapped}") if mapped else ()))
        found |= dict.fromkeys(names, number)
    return found


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


def _cache_id(tree: HostTree, folder: str, cpu: int) -> int:
    told = (tree.text(f"{folder}/id") or "").strip()
    if told.isdecimal():
        return int(told)
    return min(parse_cpuset(tree.text(f"{folder}/shared_cpu_list") or str(cpu)), default=cpu)


def _huge_pages(tree: HostTree, folder: str) -> dict[int, int]:
    path = tree.path(folder)
    found = {}
    for entry in sorted(path.iterdir()) if path.is_dir() else ():
        size = _HUGE_PAGES.match(entry.name)
        count = (tree.text(f"{folder}/{entry.name}/nr_hugepages") or "0").strip()
        if size and count.isdecimal() and int(count):
            page_bytes = int(size[1]) * 1024
            found[page_bytes] = int(count) * page_bytes
    return found
