"""CPU topology of one machine: which hardware threads share a core, a NUMA node and a socket."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class CpuBindPolicy(StrEnum):
    """Layout of a pod's CPUs on the cores (values of the protocol's resource-spec annotation)."""

    NONE = ""
    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"

    @property
    def binds(self) -> bool:
        """True for the two policies that give a pod CPUs of its own."""
        return self in (CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS)


class CpuExclusivePolicy(StrEnum):
    """Level that a pod prefers not to share with other pods of the same policy."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NumaStrategy(StrEnum):
    """Order in which NUMA nodes and sockets are filled."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    DISTRIBUTE_EVENLY = "DistributeEvenly"


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """One hardware thread and where it sits; `core`, `node` and `socket` are numbered machine-wide."""

    id: int
    core: int
    node: int
    socket: int


@dataclass(frozen=True, slots=True)
class CpuTopology:
    """All hardware threads of a machine; empty when the machine has not reported them."""

    cpus: Mapping[int, CpuInfo]
    threads_per_core: int = field(init=False)
    numa_nodes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        cores = {cpu.core for cpu in self.cpus.values()}
        object.__setattr__(self, "threads_per_core", -(-len(self.cpus) // len(cores)) if cores else 0)
        object.__setattr__(self, "numa_nodes", tuple(sorted({cpu.node for cpu in self.cpus.values()})))

    @classmethod
    def of(cls, cpus: Iterable[CpuInfo]) -> "CpuTopology":
        """The topology made of these hardware threads."""
        return cls({cpu.id: cpu for cpu in sorted(cpus, key=lambda cpu: cpu.id)})

    @classmethod
    def regular(cls, sockets: int, nodes_per_socket: int, cores_per_node: int, threads: int) -> "CpuTopology":
        """A symmetric machine whose sibling threads have adjacent numbers."""
        cpus = []
        for number in range(sockets * nodes_per_socket * cores_per_node * threads):
            core = number // threads
            node = core // cores_per_node
            cpus.append(CpuInfo(number, core, node, node // nodes_per_socket))
        return cls.of(cpus)

    def whole_cores(self, free: Iterable[int]) -> frozenset[int]:
        """The CPUs of `free` whose core is free with all its threads."""
        by_core: dict[int, list[int]] = {}
        for number in free:
            by_core.setdefault(self.cpus[number].core, []).append(number)
        return frozenset(cpu for cpus in by_core.values() if len(cpus) == self.threads_per_core for cpu in cpus)

    def first_threads(self, free: Iterable[int]) -> frozenset[int]:
        """One CPU, the lowest free one, of each core."""
        lowest: dict[int, int] = {}
        for number in sorted(free):
            lowest.setdefault(self.cpus[number].core, number)
        return frozenset(lowest.values())
