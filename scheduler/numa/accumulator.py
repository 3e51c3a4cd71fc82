"""Choose CPUs of one machine for one pod: whole cores or spread threads, near each other, rivals kept apart.

The order of preference is the one Koordinator's users know; table tests pin it. Nothing is remembered here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scheduler.numa.topology import CpuBindPolicy, CpuExclusivePolicy, CpuInfo, CpuTopology, NumaStrategy

Arrange = Callable[[Iterable[CpuInfo]], list[CpuInfo]]
Place = Callable[[CpuInfo], int]


@dataclass(frozen=True, slots=True)
class CpuDemand:
    """CPU request of a pod on one machine; `required` forbids falling back to another layout."""

    count: int
    bind: CpuBindPolicy
    exclusive: CpuExclusivePolicy = CpuExclusivePolicy.NONE
    required: bool = False


@dataclass(frozen=True, slots=True)
class CpuOffer:
    """Free CPUs of a machine, and the cores and NUMA nodes of pods with an exclusive policy."""

    topology: CpuTopology
    free: frozenset[int]
    exclusive_cores: frozenset[int] = frozenset()
    """Cores that hold a pod with policy PCPULevel."""
    exclusive_nodes: frozenset[int] = frozenset()
    """NUMA nodes that hold a pod with policy NUMANodeLevel."""
    preferred: frozenset[int] = frozenset()
    """CPUs to use first, such as those of the pod's reservation; a subset of `free`."""


def eligible(topology: CpuTopology, free: frozenset[int], demand: CpuDemand) -> frozenset[int]:
    """The CPUs a required policy leaves: those of wholly free cores, or one of each core; else all."""
    if not demand.required:
        return free
    if demand.bind is CpuBindPolicy.FULL_PCPUS:
        return topology.whole_cores(free)
    return topology.first_threads(free)


def take_cpus(offer: CpuOffer, demand: CpuDemand, strategy: NumaStrategy) -> frozenset[int] | None:
    """`demand.count` CPUs out of `offer.free`, or None when they cannot be had under the policy.

    Preferred CPUs are used up before others. A required FullPCPUs takes whole cores only, a required
    SpreadByPCPUs at most one thread of each core.
    """
    usable = eligible(offer.topology, offer.free, demand)
    if demand.count > len(usable):
        return None
    first = eligible(offer.topology, offer.preferred & offer.free, demand)
    if demand.required and demand.bind is CpuBindPolicy.SPREAD_BY_PCPUS:
        cores = {offer.topology.cpus[cpu].core for cpu in first}
        usable = first | {cpu for cpu in usable if offer.topology.cpus[cpu].core not in cores}
    taken: frozenset[int] = frozenset()
    if first:
        taken = _Accumulator(offer, first, demand, strategy).take(min(demand.count, len(first)))
    if len(taken) < demand.count:
        rest = _Accumulator(offer, usable - taken, demand, strategy)
        taken |= rest.take(demand.count - len(taken), near=taken)
    if demand.required and not _obeys(offer.topology, taken, demand.bind):
        return None
    return taken


def _obeys(topology: CpuTopology, cpus: frozenset[int], bind: CpuBindPolicy) -> bool:
    if bind is CpuBindPolicy.FULL_PCPUS:
        return topology.whole_cores(cpus) == cpus
    return len({topology.cpus[cpu].core for cpu in cpus}) == len(cpus)


class _Accumulator:
    """One selection among `free`; holds the questions that every step asks of it."""

    def __init__(self, offer: CpuOffer, free: frozenset[int], demand: CpuDemand, strategy: NumaStrategy) -> None:
        self.offer = offer
        self.cpus = [offer.topology.cpus[cpu] for cpu in sorted(free)]
        self.demand = demand
        self.most = strategy is NumaStrategy.MOST_ALLOCATED
        self.threads = offer.topology.threads_per_core

    def take(self, count: int, near: frozenset[int] = frozenset()) -> frozenset[int]:
        """`count` CPUs, at most as many as are free; `near` are already the pod's."""
        if self.demand.bind is CpuBindPolicy.FULL_PCPUS or self.threads == 1:
            chosen = self._within_one(self._whole, count) or self._cores_of_many_sockets(count)
        else:
            spread = self._within_one(self._spread_on_cores, count) or self._within_one(self._spread, count)
            chosen = spread or []
        taken = frozenset(cpu.id for cpu in chosen)
        return taken | self._remaining(count - len(taken), taken, near)

    def _within_one(self, arrange: Arrange, count: int) -> list[CpuInfo] | None:
        """The CPUs of the first NUMA node, else socket, that holds the whole count in the wanted layout."""
        for place in (_node, _socket):
            for respected in (True, False):
                candidates = self._apart_from_rivals() if respected else self.cpus
                for group in self._places(candidates, place, arrange):
                    if len(group) >= count:
                        return group[:count]
        return None

    def _apart_from_rivals(self) -> list[CpuInfo]:
        """Free CPUs away from pods with this pod's exclusive policy."""
        if self.demand.exclusive is CpuExclusivePolicy.PCPU_LEVEL:
            return [cpu for cpu in self.cpus if cpu.core not in self.offer.exclusive_cores]
        if self.demand.exclusive is CpuExclusivePolicy.NUMA_NODE_LEVEL:
            return [cpu for cpu in self.cpus if cpu.node not in self.offer.exclusive_nodes]
        return self.cpus

    def _places(self, candidates: list[CpuInfo], place: Place, arrange: Arrange) -> list[list[CpuInfo]]:
        """CPUs of each NUMA node or socket, arranged, in the order in which the strategy fills them."""
        sockets = _grouped(candidates, _socket)
        groups = [(arrange(group), group) for group in _grouped(candidates, place).values()]
        sign = 1 if self.most else -1
        whole = arrange == self._whole

        def order(item: tuple[list[CpuInfo], list[CpuInfo]]) -> tuple[int, int, int]:
            arranged, group = item
            size = len(arranged) if whole else len(group)
            return sign * size, sign * len(sockets[group[0].socket]), place(group[0])

        return [arranged for arranged, _ in sorted(groups, key=order)]

    def _whole(self, cpus: Iterable[CpuInfo]) -> list[CpuInfo]:
        """CPUs of wholly free cores, core by core."""
        cores = _grouped(cpus, _core)
        return [cpu for core in sorted(cores) if len(cores[core]) == self.threads for cpu in cores[core]]

    def _spread_on_cores(self, cpus: Iterable[CpuInfo]) -> list[CpuInfo]:
        """The first free thread of each core and no second one."""
        return [group[0] for group in _grouped(cpus, _core).values()]

    def _spread(self, cpus: Iterable[CpuInfo]) -> list[CpuInfo]:
        """First threads of all cores, then second threads, and so on."""
        return _by_rank(_grouped(cpus, _core).values())

    def _cores_of_many_sockets(self, count: int) -> list[CpuInfo]:
        """Whole cores from several sockets: emptiest sockets whole, then the fullest core by core."""
        sockets = sorted((self._whole(group) for group in _grouped(self.cpus, _socket).values()), key=len, reverse=True)
        chosen: list[CpuInfo] = []
        partial = []
        for group in sockets:
            if len(group) <= count - len(chosen):
                chosen += group
            else:
                partial.append(group)
        for group in reversed(partial):
            whole_threads = (count - len(chosen)) // self.threads * self.threads
            chosen += group[:whole_threads]
        return chosen

    def _remaining(self, count: int, taken: frozenset[int], near: frozenset[int]) -> frozenset[int]:
        """`count` single threads: away from rivals first, where the pod already sits, spread over cores."""
        chosen: list[int] = []
        own = taken | near
        for candidates in (self._apart_from_rivals(), self.cpus):
            ordered = self._nearest([cpu for cpu in candidates if cpu.id not in taken], own)
            chosen += [cpu.id for cpu in ordered if cpu.id not in chosen][: count - len(chosen)]
        return frozenset(chosen)

    def _nearest(self, cpus: list[CpuInfo], own: frozenset[int]) -> list[CpuInfo]:
        sockets, nodes, cores = _grouped(cpus, _socket), _grouped(cpus, _node), _grouped(cpus, _core)
        neighbours = _grouped((self.offer.topology.cpus[cpu] for cpu in own), _socket)
        sign = 1 if self.most else -1

        def order(core: int) -> tuple[int, ...]:
            first = cores[core][0]
            shared = -len(neighbours.get(first.socket, ()))
            free = (sign * len(sockets[first.socket]), sign * len(nodes[first.node]))
            return (shared, *free, len(cores[core]), first.socket, core)

        return _by_rank(cores[core] for core in sorted(cores, key=order))


def _by_rank(groups: Iterable[list[CpuInfo]]) -> list[CpuInfo]:
    """First members of all groups, then second members, and so on."""
    remaining = [list(group) for group in groups]
    ordered: list[CpuInfo] = []
    while remaining:
        ordered += [group.pop(0) for group in remaining]
        remaining = [group for group in remaining if group]
    return ordered


def _grouped(cpus: Iterable[CpuInfo], key: Place) -> dict[int, list[CpuInfo]]:
    groups: dict[int, list[CpuInfo]] = {}
    for cpu in cpus:
        groups.setdefault(key(cpu), []).append(cpu)
    return groups


def _core(cpu: CpuInfo) -> int:
    return cpu.core


def _node(cpu: CpuInfo) -> int:
    return cpu.node


def _socket(cpu: CpuInfo) -> int:
    return cpu.socket
