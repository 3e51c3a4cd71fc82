"""Spread an amount over NUMA nodes, score them, and keep single-NUMA pods apart from spanning ones."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from scheduler.numa.hints import nodes_of
from scheduler.numa.topology import NumaStrategy


class NumaStatus(StrEnum):
    """Kind of pods on a NUMA node: none, pods that stay on it alone, or pods that span several."""

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


class NumaExclusive(StrEnum):
    """Policy of a pod about single-NUMA and spanning pods on one NUMA node."""

    NONE = ""
    PREFERRED = "Preferred"
    REQUIRED = "Required"


def divide(
    request: int, free: Mapping[int, int], mask: int, strategy: NumaStrategy, granule: int = 1
) -> dict[int, int] | None:
    """Amount per NUMA node of `mask`, summing to `request`; None when the free amounts do not suffice.

    Nodes are filled in mask order; with DistributeEvenly in ascending availability, each taking the remaining
    request over the remaining nodes. Parts are multiples of `granule` wherever `request` is.
    """
    nodes = list(nodes_of(mask))
    evenly = strategy is NumaStrategy.DISTRIBUTE_EVENLY
    if evenly:
        nodes.sort(key=lambda node: (free.get(node, 0), node))
    parts: dict[int, int] = {}
    remaining = request
    for position, node in enumerate(nodes):
        share = remaining // (len(nodes) - position) if evenly else remaining
        part = min(-(-share // granule) * granule, free.get(node, 0) // granule * granule, remaining)
        if part > 0:
            parts[node] = part
            remaining -= part
    return None if remaining else parts


def numa_status(masks: Iterable[int], numa_nodes: Sequence[int]) -> dict[int, NumaStatus]:
    """Status of each NUMA node from the masks of the pods placed; a spanning pod outweighs single ones."""
    status = dict.fromkeys(numa_nodes, NumaStatus.IDLE)
    for mask in masks:
        spanning = mask.bit_count() > 1
        for node in nodes_of(mask):
            if spanning:
                status[node] = NumaStatus.SHARED
            elif status.get(node) is NumaStatus.IDLE:
                status[node] = NumaStatus.SINGLE
    return status


def exclusive_violation(mask: int, status: Mapping[int, NumaStatus]) -> bool:
    """True when a pod on `mask` would mix single-NUMA and spanning pods on one NUMA node."""
    unwanted = NumaStatus.SINGLE if mask.bit_count() > 1 else NumaStatus.SHARED
    return any(status.get(node) is unwanted for node in nodes_of(mask))


def allocation_score(
    requested: Mapping[str, int],
    allocatable: Mapping[str, int],
    weights: Mapping[str, int],
    strategy: NumaStrategy,
) -> int:
    """Score 0..100 of a node or of the chosen NUMA nodes, `requested` including the pod.

    LeastAllocated: (allocatable - requested) * 100 / allocatable; MostAllocated: requested * 100 /
    allocatable; integer division, weighted mean over resources; an overcommitted or absent resource scores 0.
    """
    total, weight_sum = 0, 0
    for resource, weight in weights.items():
        capacity, used = allocatable.get(resource, 0), requested.get(resource, 0)
        if capacity > 0 and used <= capacity:
            part = used if strategy is NumaStrategy.MOST_ALLOCATED else capacity - used
            total += part * 100 // capacity * weight
        weight_sum += weight
    return total // weight_sum if weight_sum else 0


def amplified(amount: int, ratio: float) -> int:
    """ceil(amount * ratio) for a ratio above 1, else the amount; the ratio has two decimals, kept exact."""
    hundredths = round(ratio * 100)
    return -(-amount * hundredths // 100) if hundredths > 100 else amount
