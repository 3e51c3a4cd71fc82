"""GPU partitions: sets of GPUs wired well among themselves, chosen so that larger sets stay whole."""

from collections.abc import Collection, Mapping, Sequence

from api.kube.device import GpuPartition
from api.kube.resources import parse_quantity

PartitionTable = Mapping[int, tuple[GpuPartition, ...]]
"""Number of GPUs to the partitions of that size."""

INTACT_WEIGHTS = {8: 10_000, 4: 100, 2: 1}
"""Worth of a partition of each size that remains free."""

RING_MODELS = frozenset({"H100", "H800", "H20"})
"""Models whose eight GPUs split into halves, pairs and singles when a node reports no table."""


def default_table(model: str) -> PartitionTable | None:
    """The built-in table of an eight-GPU ring model; None for any other model."""
    if not any(part in RING_MODELS for part in model.upper().replace("_", "-").split("-")):
        return None
    return {
        size: tuple(
            GpuPartition(minors=list(range(first, first + size)), gpu_link_type="NVLink", allocation_score=1)
            for first in range(0, 8, size)
        )
        for size in (1, 2, 4, 8)
    }


def usable_partitions(
    table: PartitionTable, count: int, free: Collection[int], bandwidth: int = 0
) -> list[GpuPartition]:
    """Partitions of `count` GPUs whose minors are all in `free` and whose ring is at least `bandwidth` fast."""
    return [
        partition
        for partition in table.get(count, ())
        if set(partition.minors) <= set(free) and parse_quantity(partition.ring_bus_bandwidth) >= bandwidth
    ]


def choose_partition(
    table: PartitionTable, count: int, free: Collection[int], *, bandwidth: int = 0, best_only: bool = False
) -> GpuPartition | None:
    """The partition of `count` GPUs to use, or None.

    Groups of equal allocation score are tried from the highest down; `best_only` stops after the highest score
    that the table lists for this size. Within a group the choice leaves the most worth intact: the sum over
    partitions still free of weight(size) x allocation score; ties go to the lowest minors.
    """
    usable = usable_partitions(table, count, free, bandwidth)
    if best_only:
        top = max((partition.allocation_score for partition in table.get(count, ())), default=0)
        usable = [partition for partition in usable if partition.allocation_score == top]
    if not usable:
        return None
    return max(usable, key=lambda p: (p.allocation_score, intact_worth(table, free, p.minors), _low_first(p.minors)))


def intact_worth(table: PartitionTable, free: Collection[int], taken: Collection[int]) -> int:
    """Worth of the partitions that remain wholly free once `taken` are gone."""
    left = set(free) - set(taken)
    return sum(
        INTACT_WEIGHTS.get(size, 0) * partition.allocation_score
        for size, partitions in table.items()
        for partition in partitions
        if set(partition.minors) <= left
    )


def _low_first(minors: Sequence[int]) -> tuple[int, ...]:
    return tuple(-minor for minor in sorted(minors))
