"""Partition table of GPUs: sets that are linked well among themselves. Pure."""

from collections.abc import Collection, Mapping, Sequence

from api.kube.device import GpuPartition
from koordlet.devices.inventory import FoundDevice, LinkGroup

Table = dict[str, list[GpuPartition]]
"""Number of GPUs to the partitions of that size, as the annotation `gpu-partitions` spells it."""

NVLINK = "NVLink"


def partition_table(gpus: Sequence[FoundDevice]) -> Table:
    """Return the partitions of these GPUs; empty where no link is known.

    Where a vendor's tool names sets of linked devices, these are the partitions. Else they are found among the pairs
    with a direct link: pairs, fours and eights that start at a multiple of their size, in each of which both halves
    are partitions and every GPU has a link into the other half. Each GPU is a partition of one.
    """
    minors = sorted(gpu.minor for gpu in gpus)
    groups = _named(gpus, minors) or _by_pairs({gpu.minor: gpu.peers for gpu in gpus}, minors)
    if not groups:
        return {}
    singles = [LinkGroup(groups[0].type, frozenset({minor})) for minor in minors]
    table: Table = {}
    for group in [*singles, *sorted(groups, key=lambda group: sorted(group.minors))]:
        partition = GpuPartition(minors=sorted(group.minors), gpu_link_type=group.type, allocation_score=1)
        table.setdefault(str(len(group.minors)), []).append(partition)
    return {size: table[size] for size in sorted(table, key=int)}


def _named(gpus: Sequence[FoundDevice], minors: Sequence[int]) -> list[LinkGroup]:
    present = frozenset(minors)
    found = {(group.type, group.minors) for gpu in gpus for group in gpu.groups}
    return [LinkGroup(kind, members) for kind, members in found if members <= present and len(members) > 1]


def _by_pairs(peers: Mapping[int, Collection[int]], minors: Sequence[int]) -> list[LinkGroup]:
    groups: list[LinkGroup] = []
    halves = {frozenset({minor}) for minor in minors}
    size = 2
    while size <= len(minors):
        whole = {
            left | right
            for start in range(0, len(minors) - size + 1, size)
            if (left := frozenset(minors[start : start + size // 2])) in halves
            and (right := frozenset(minors[start + size // 2 : start + size])) in halves
            and all(right & set(peers[minor]) for minor in left)
            and all(left & set(peers[minor]) for minor in right)
        }
        groups += [LinkGroup(NVLINK, members) for members in whole]
        halves, size = whole, size * 2
    return groups
