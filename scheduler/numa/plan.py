"""Decide one pod's CPUs and NUMA amounts on one machine: align, take, divide. Pure; records nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from api.kube.resources import CPU, MEMORY
from scheduler.numa.accumulator import CpuDemand, take_cpus
from scheduler.numa.hints import NumaHint, NumaPolicy, effective_policy, merge, nodes_of, resource_hints
from scheduler.numa.machine import MILLI, Machine, NumaAmounts
from scheduler.numa.placement import NumaExclusive, amplified, divide, exclusive_violation
from scheduler.numa.topology import NumaStrategy


class PlanError(Exception):
    """The machine cannot serve the pod; the message is the reason given to the user."""


@dataclass(frozen=True, slots=True)
class NumaDemand:
    """Request of a pod on one machine, node rules included."""

    cpu_millicores: int
    memory_bytes: int = 0
    cpus: CpuDemand | None = None
    """Set when the pod gets CPUs of its own."""
    node_policy: NumaPolicy = NumaPolicy.NONE
    pod_policy: NumaPolicy = NumaPolicy.NONE
    exclusive: NumaExclusive = NumaExclusive.NONE
    strategy: NumaStrategy = NumaStrategy.LEAST_ALLOCATED


@dataclass(frozen=True, slots=True)
class NumaPlan:
    """CPUs and NUMA amounts that the pod would get. `mask` 0 means that it is not aligned."""

    cpus: frozenset[int] = frozenset()
    numa: NumaAmounts = field(default_factory=dict)
    mask: int = 0
    mixes: bool = False
    """True when single-NUMA and spanning pods would share a NUMA node."""


def make_plan(
    machine: Machine,
    demand: NumaDemand,
    *,
    preferred: frozenset[int] = frozenset(),
    device_hints: Sequence[Sequence[NumaHint]] = (),
) -> NumaPlan:
    """The plan for a pod on a machine; `preferred` CPUs are used first. Raises PlanError or PolicyConflictError."""
    policy = effective_policy(demand.node_policy, demand.pod_policy)
    mask = 0
    if machine.numa_total(CPU) and policy:
        mask = _align(machine, demand, policy, device_hints)
    elif policy in (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE):
        raise PlanError("node(s) NUMA topology affinity")
    cpus: frozenset[int] = frozenset()
    if demand.cpus is not None:
        lenient = policy is NumaPolicy.BEST_EFFORT
        cpus = _take(machine, demand, demand.cpus, preferred, (mask, 0) if lenient else (mask,))
    numa = _amounts(machine, demand, cpus, mask)
    mixes = bool(mask) and exclusive_violation(mask, machine.status())
    return NumaPlan(cpus, numa, mask, mixes)


def _align(machine: Machine, demand: NumaDemand, policy: NumaPolicy, devices: Sequence[Sequence[NumaHint]]) -> int:
    """The NUMA nodes that suit cpu, memory and devices alike."""
    providers: list[Sequence[NumaHint] | None] = list(devices)
    ratio = machine.shape.amplification if demand.cpus is not None else 1.0
    for resource, amount in ((CPU, amplified(demand.cpu_millicores, ratio)), (MEMORY, demand.memory_bytes)):
        total = machine.numa_total(resource)
        if amount and total:
            hints = resource_hints(amount, total, machine.numa_free(resource))
            if demand.cpus is not None and resource == CPU:
                hints = _with_cpus(machine, hints, demand.cpus.count)
            providers.append(hints)
    if _keeps_apart(demand):
        status = machine.status()
        providers = [
            None if hints is None else [hint for hint in hints if not exclusive_violation(hint.mask, status)]
            for hints in providers
        ]
    result = merge(providers, machine.numa_total(CPU), policy)
    if not result.admitted:
        raise PlanError("node(s) NUMA topology affinity")
    if _keeps_apart(demand) and exclusive_violation(result.mask, machine.status()):
        raise PlanError("node(s) NUMA topology affinity")
    return result.mask


def _with_cpus(machine: Machine, hints: Sequence[NumaHint], count: int) -> list[NumaHint]:
    """The hints whose NUMA nodes have `count` free CPUs: shared pods may have taken the amount but not the CPUs."""
    free: dict[int, int] = {}
    for cpu in machine.free:
        node = machine.shape.topology.cpus[cpu].node
        free[node] = free.get(node, 0) + 1
    return [hint for hint in hints if sum(free.get(node, 0) for node in nodes_of(hint.mask)) >= count]


def _keeps_apart(demand: NumaDemand) -> bool:
    """Return whether single-NUMA and spanning pods must not meet: the default of a pod with a policy of its own."""
    if demand.exclusive is NumaExclusive.NONE:
        return bool(demand.pod_policy)
    return demand.exclusive is NumaExclusive.REQUIRED


def _take(
    machine: Machine, demand: NumaDemand, cpus: CpuDemand, preferred: frozenset[int], masks: Sequence[int]
) -> frozenset[int]:
    for mask in masks:
        taken = take_cpus(machine.offer(preferred, mask), cpus, demand.strategy)
        if taken is not None:
            return taken
    raise PlanError("Insufficient CPUs to bind")


def _amounts(machine: Machine, demand: NumaDemand, cpus: frozenset[int], mask: int) -> NumaAmounts:
    """Amounts by NUMA node: cpu where the CPUs are, everything else divided over the mask."""
    amounts: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        node = machine.shape.topology.cpus[cpu].node
        part = amounts.setdefault(node, {})
        part[CPU] = part.get(CPU, 0) + MILLI
    if not mask:
        return amounts
    shared = () if cpus else ((CPU, demand.cpu_millicores),)
    for resource, amount in (*shared, (MEMORY, demand.memory_bytes)):
        if not machine.numa_total(resource) or not amount:
            continue
        parts = divide(amount, machine.numa_free(resource), mask, demand.strategy)
        if parts is None:
            if demand.node_policy is NumaPolicy.BEST_EFFORT or demand.pod_policy is NumaPolicy.BEST_EFFORT:
                continue
            raise PlanError("node(s) NUMA topology affinity")
        for node, part_amount in parts.items():
            amounts.setdefault(node, {})[resource] = part_amount
    return amounts
