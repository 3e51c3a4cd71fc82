"""One node's CPUs and NUMA memory, and who holds them. CPUs given to one pod are never given to another.

The one exception is a reservation: pods that draw from it share its CPUs with it, not with each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api.kube.resources import CPU, MEMORY
from scheduler.numa.accumulator import CpuOffer
from scheduler.numa.placement import NumaStatus, amplified, numa_status
from scheduler.numa.topology import CpuExclusivePolicy, CpuTopology

MILLI = 1000

NumaAmounts = Mapping[int, Mapping[str, int]]
"""NUMA node to amounts: cpu in millicores, memory in bytes."""


@dataclass(frozen=True, slots=True)
class MachineShape:
    """Machine of a node as its agent reports it, less what is not for pods."""

    topology: CpuTopology
    withheld: frozenset[int] = frozenset()
    """CPUs of the kubelet, of system daemons or reserved on the node."""
    numa: NumaAmounts = field(default_factory=dict)
    """Allocatable amounts by NUMA node, before amplification."""
    amplification: float = 1.0
    """Ratio by which the node's cpu is amplified."""


@dataclass(frozen=True, slots=True)
class CpuHold:
    """CPUs and amounts that one pod holds; `within` is the UID of the reservation's stand-in that it draws from."""

    cpus: frozenset[int] = frozenset()
    exclusive: CpuExclusivePolicy = CpuExclusivePolicy.NONE
    numa: NumaAmounts = field(default_factory=dict)
    within: str = ""

    @property
    def mask(self) -> int:
        """The NUMA nodes it has something of."""
        return sum(1 << node for node in self.numa)


EMPTY_SHAPE = MachineShape(CpuTopology({}))


class Machine:
    """Ledger of one node; changed by `refit`, `hold` and `release` alone."""

    def __init__(self, shape: MachineShape = EMPTY_SHAPE) -> None:
        self.shape = shape
        self.holders: dict[str, CpuHold] = {}
        self.version = 0
        """Grows with every change."""

    def refit(self, shape: MachineShape) -> None:
        """Take over a changed report; what pods hold stays held."""
        self.shape = shape
        self.version += 1

    def hold(self, uid: str, hold: CpuHold) -> None:
        """Record what a pod has, replacing what it had."""
        self.holders[uid] = hold
        self.version += 1

    def release(self, uid: str) -> None:
        """Forget a pod; unknown ones are ignored."""
        self.holders.pop(uid, None)
        self.version += 1

    def without(self, uids: Iterable[str]) -> "Machine":
        """The same node as if some pods or reservations were gone; for asking, not for recording."""
        gone = set(uids)
        view = Machine(self.shape)
        view.holders = {uid: hold for uid, hold in self.holders.items() if uid not in gone}
        return view

    @property
    def allocated(self) -> frozenset[int]:
        """CPUs that pods hold."""
        return frozenset().union(*(hold.cpus for hold in self.holders.values()))

    @property
    def free(self) -> frozenset[int]:
        """CPUs that may be given."""
        return frozenset(self.shape.topology.cpus) - self.shape.withheld - self.allocated

    @property
    def bound_millicores(self) -> int:
        """CPU of pods that have CPUs of their own, before amplification, reservations counted once."""
        return len(self.allocated) * MILLI

    def offer(self, preferred: frozenset[int] = frozenset(), mask: int = 0) -> CpuOffer:
        """CPUs that may be given on the NUMA nodes of `mask` (0: all), `preferred` CPUs first."""
        topology, free = self.shape.topology, self.free
        if mask:
            free = frozenset(cpu for cpu in free if mask >> topology.cpus[cpu].node & 1)
        cores, nodes = set(), set()
        for hold in self.holders.values():
            for cpu in hold.cpus:
                place = topology.cpus.get(cpu)
                if place is not None and hold.exclusive is CpuExclusivePolicy.PCPU_LEVEL:
                    cores.add(place.core)
                elif place is not None and hold.exclusive is CpuExclusivePolicy.NUMA_NODE_LEVEL:
                    nodes.add(place.node)
        return CpuOffer(topology, free, frozenset(cores), frozenset(nodes), preferred & free)

    def numa_total(self, resource: str) -> dict[int, int]:
        """Allocatable amount by NUMA node, cpu amplified; without a report of memory only cpu is known."""
        shape = self.shape
        totals = {node: amounts[resource] for node, amounts in shape.numa.items() if resource in amounts}
        if not totals and resource == CPU:
            for cpu in shape.topology.cpus.values():
                totals[cpu.node] = totals.get(cpu.node, 0) + MILLI * (cpu.id not in shape.withheld)
        if resource == CPU:
            return {node: amplified(amount, shape.amplification) for node, amount in totals.items()}
        return totals

    def numa_free(self, resource: str) -> dict[int, int]:
        """Amount left by NUMA node, never below zero; CPUs of one's own count amplified."""
        free = self.numa_total(resource)
        drawn: dict[str, dict[int, int]] = {}
        for hold in self.holders.values():
            for node, amount in self._charged(hold, resource).items():
                if hold.within in self.holders:
                    drawn.setdefault(hold.within, {})[node] = drawn.get(hold.within, {}).get(node, 0) + amount
                free[node] = free.get(node, 0) - amount
        for uid, amounts in drawn.items():
            own = self._charged(self.holders[uid], resource)
            for node, amount in amounts.items():
                free[node] = free.get(node, 0) + min(amount, own.get(node, 0))
        return {node: max(0, amount) for node, amount in free.items()}

    def _charged(self, hold: CpuHold, resource: str) -> dict[int, int]:
        ratio = self.shape.amplification if resource == CPU and hold.cpus else 1.0
        return {node: amplified(amounts.get(resource, 0), ratio) for node, amounts in hold.numa.items()}

    def status(self) -> dict[int, NumaStatus]:
        """Kind of pods on each NUMA node: none, single-NUMA or spanning."""
        masks = (hold.mask for hold in self.holders.values() if hold.mask)
        return numa_status(masks, sorted({*self.numa_total(CPU), *self.numa_total(MEMORY)}))
