"""Memory of each cgroup on NUMA nodes away from the CPUs that it runs on."""

from collections.abc import Mapping, Sequence

import numpy as np

from api.cpuset import parse_cpuset
from api.frame import CGROUP, CgroupInfo, Reading, Table, align
from api.plugin import Unsupported
from koordlet.collectors import Collector, Host, Round
from koordlet.host.files import KeptFiles
from koordlet.host.topology import cpu_places, numa_memory

AWAY = 0.1
"""Part of its CPU time below which a cgroup is away from a node; one that runs everywhere is away from none."""
_PAGE_BYTES = 4096
_COUNTED = (b"anon", b"file")

Bytes = dict[int, float]
"""Bytes by node."""


class Numa(Collector):
    """Pages by node from memory.numa_stat; CPU time by node from cpuacct.usage_percpu (v1), and on v2, which does not
    say, from the CPUs that the cgroup may use. Read in turn: pages move slowly."""

    def __init__(self, host: Host, node_of_cpu: Mapping[int, int]) -> None:
        memory = host.hierarchies.memory
        assert memory is not None
        self._node_of_cpu = dict(node_of_cpu)
        self._nodes = frozenset(node_of_cpu.values())
        self._pages = KeptFiles(memory, "memory.numa_stat")
        v1, self._unit = host.hierarchies.version == 1, 1
        if v1:
            assert host.hierarchies.cpuacct is not None
            self._unit = _PAGE_BYTES
        mount = host.hierarchies.cpuacct if v1 else host.hierarchies.unified
        assert mount is not None
        self._cpus = KeptFiles(mount, "cpuacct.usage_percpu" if v1 else "cpuset.cpus.effective")
        self._is_usage = v1
        self._ran_before: dict[int, tuple[float, ...]] = {}
        self._rows: dict[int, tuple[float, float]] = {}
        self._read_ns: dict[int, int] = {}

    @classmethod
    def open(cls, host: Host) -> "Numa":
        """Raises Unsupported on a host with one node, and where no controller says where pages are."""
        nodes = {place.id: place.node for place in cpu_places(host.tree)}
        if len(numa_memory(host.tree)) < 2 or len(set(nodes.values())) < 2:
            raise Unsupported("the host has one NUMA node: no memory is remote")
        if host.hierarchies.memory is None:
            raise Unsupported("no memory controller is mounted", "mount the memory controller (v1) or cgroup2")
        if host.hierarchies.version == 1 and host.hierarchies.cpuacct is None:
            raise Unsupported("no cpuacct controller is mounted", "mount the cpuacct controller (v1) or cgroup2")
        return cls(host, nodes)

    def collect(self, work: Round) -> Reading:
        for info in work.due:
            self._read(info, work.now_ns)
        known = [info.id for info in work.cgroups if info.id in self._rows]
        rows = np.array([self._rows[identity] for identity in known]).reshape(-1, 2)
        times = np.array([self._read_ns[identity] for identity in known], dtype=np.float64)
        ids = work.ids
        found = {"numa.away_bytes": rows[:, 0], "numa.placed_bytes": rows[:, 1], "": times}
        aligned = align(ids, Table({"cgroup": np.array(known, dtype=np.uint64)}, found))
        read_ns = dict.fromkeys(("numa.away_bytes", "numa.placed_bytes"), aligned.pop(""))
        lost = {
            "numa.vanished": self._pages.vanished + self._cpus.vanished,
            "numa.malformed": self._pages.malformed + self._cpus.malformed,
        }
        return Reading({CGROUP: Table({"cgroup": ids}, aligned)}, lost, read_ns)

    def _read(self, info: CgroupInfo, now_ns: int) -> None:
        pages, cpus = self._pages.read(info.path), self._cpus.read(info.path)
        if pages is None or cpus is None:
            return
        try:
            by_node = {node: amount * self._unit for node, amount in parse_numa_stat(pages).items()}
            ran = self._ran(info.id, cpus)
        except (ValueError, KeyError, IndexError):
            self._pages.malformed += 1
            return
        if ran:
            self._rows[info.id] = away_bytes(by_node, ran), sum(by_node.values())
            self._read_ns[info.id] = now_ns

    def _ran(self, identity: int, content: bytes) -> dict[int, float]:
        """CPU time by node since the last reading, or CPUs that may be used; empty where that is not known yet."""
        if not self._is_usage:
            allowed = parse_cpuset(content.decode())
            return by_node(dict.fromkeys(allowed, 1.0), self._node_of_cpu)
        used = tuple(map(float, content.split()))
        before = self._ran_before.get(identity)
        self._ran_before[identity] = used
        if before is None or len(before) != len(used):
            return {}
        return by_node(
            {cpu: max(now - then, 0.0) for cpu, (now, then) in enumerate(zip(used, before, strict=True))},
            self._node_of_cpu,
        )

    def forget(self, gone: Sequence[CgroupInfo]) -> None:
        for info in gone:
            self._pages.drop(info.path)
            self._cpus.drop(info.path)
            for kept in (self._rows, self._ran_before, self._read_ns):
                kept.pop(info.id, None)

    def close(self) -> None:
        self._pages.close()
        self._cpus.close()


def by_node(cpus: Mapping[int, float], node_of_cpu: Mapping[int, int]) -> dict[int, float]:
    """Sum by node; empty where nothing ran. CPUs without a node, which are offline, do not count."""
    found: dict[int, float] = {}
    for cpu, amount in cpus.items():
        if amount > 0 and cpu in node_of_cpu:
            found[node_of_cpu[cpu]] = found.get(node_of_cpu[cpu], 0.0) + amount
    return found


def away_bytes(pages: Bytes, ran: Mapping[int, float]) -> float:
    """Bytes on nodes on which the cgroup spent less than `AWAY` of its CPU time."""
    whole = sum(ran.values())
    return sum(amount for node, amount in pages.items() if ran.get(node, 0.0) < AWAY * whole)


def parse_numa_stat(content: bytes) -> Bytes:
    """Anonymous memory and page cache by node, of the cgroup and all below: bytes on v2, pages on v1.

    Raises ValueError for a torn line, KeyError without any that counts.
    """
    lines = {line.partition(b" ")[0].partition(b"=")[0]: line.split()[1:] for line in content.splitlines() if line}
    prefix = b"hierarchical_" if b"hierarchical_anon" in lines else b""
    found: Bytes = {}
    for kind in _COUNTED:
        for word in lines[prefix + kind]:
            node, _, amount = word.partition(b"=")
            if not node.startswith(b"N"):
                raise ValueError(f"{word!r} is no node")
            found[int(node[1:])] = found.get(int(node[1:]), 0.0) + float(int(amount))
    return found
