"""NUMA hints: which sets of NUMA nodes could serve a request, and the one set that suits every provider.

A set is a bitmask (bit i is NUMA node i). The merge follows kubelet's topology manager: one hint per
provider, masks intersected; a preferred result beats another, then the narrower mask, then the higher score. An
intersection too narrow for some provider is left out, where kubelet would take it and fail to allocate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class NumaPolicy(StrEnum):
    """Value of the node label `node.koordinator.sh/numa-topology-policy`."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class PolicyConflictError(ValueError):
    """Node and pod ask for different NUMA policies; the node is rejected."""


@dataclass(frozen=True, slots=True)
class NumaHint:
    """One set of NUMA nodes that can serve a request; `preferred` when none smaller ever could."""

    mask: int
    preferred: bool
    score: int = 0


@dataclass(frozen=True, slots=True)
class Alignment:
    """Result of a merge: the NUMA nodes to use (0: no preference) and whether the policy admits the pod."""

    mask: int
    preferred: bool
    admitted: bool


def effective_policy(node: NumaPolicy, pod: NumaPolicy) -> NumaPolicy:
    """The policy for this pod on this node; raises PolicyConflictError when both are set and differ."""
    if node and pod and node is not pod:
        raise PolicyConflictError(f"node requires NUMA policy {node}, pod requires {pod}")
    return node or pod


def nodes_of(mask: int) -> tuple[int, ...]:
    """NUMA node numbers in a mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def resource_hints(request: int, total: Mapping[int, int], free: Mapping[int, int]) -> list[NumaHint]:
    """Hints of one resource: every set of NUMA nodes with enough total and enough free.

    Amounts are integers of one unit by NUMA node. A hint is preferred when its mask has the smallest size
    that could serve the request by total.
    """
    smallest = 0
    fitting: list[int] = []
    for mask in sorted(range(1, 1 << (max(total, default=-1) + 1)), key=lambda mask: (mask.bit_count(), mask)):
        nodes = nodes_of(mask)
        if any(node not in total for node in nodes) or sum(total[node] for node in nodes) < request:
            continue
        smallest = smallest or mask.bit_count()
        if sum(free.get(node, 0) for node in nodes) >= request:
            fitting.append(mask)
    return [NumaHint(mask, mask.bit_count() == smallest) for mask in fitting]


def merge(providers: Iterable[Sequence[NumaHint] | None], numa_nodes: Iterable[int], policy: NumaPolicy) -> Alignment:
    """One mask for all providers under `policy`.

    `providers` holds the hints of each resource; None is a provider without a preference, an empty sequence one
    that cannot be served on any set. BestEffort admits anything, Restricted a preferred result only,
    SingleNUMANode only one-bit masks.
    """
    everywhere = sum(1 << node for node in numa_nodes)
    considered = [_considered(hints, everywhere, policy) for hints in providers if hints is not None]
    merged: dict[tuple[int, bool], int] = {(everywhere, True): 0}
    for hints in considered:
        merged = _intersect(merged, hints)
    merged = {key: score for key, score in merged.items() if _serves_all(key[0], considered)}
    mask, preferred = min(
        merged,
        key=lambda key: (not key[0], not key[1], key[0].bit_count(), -merged[key], key[0]),
        default=(0, False),
    )
    if not mask:
        mask, preferred = everywhere, False
    return Alignment(mask, preferred, policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT) or preferred)


def _considered(hints: Sequence[NumaHint], everywhere: int, policy: NumaPolicy) -> list[NumaHint]:
    if policy is NumaPolicy.SINGLE_NUMA_NODE:
        hints = [hint for hint in hints if hint.mask.bit_count() == 1]
    return list(hints) or [NumaHint(everywhere, False)]


def _serves_all(mask: int, providers: Sequence[Sequence[NumaHint]]) -> bool:
    """Return whether a merged mask holds a set that each provider named: an intersection alone may be too narrow."""
    return all(any(hint.mask & mask == hint.mask for hint in hints) for hints in providers)


def _intersect(merged: Mapping[tuple[int, bool], int], hints: Sequence[NumaHint]) -> dict[tuple[int, bool], int]:
    """Every intersection reachable with one more provider, at its best score; at most 2 x masks entries."""
    reached: dict[tuple[int, bool], int] = {}
    for (mask, preferred), score in merged.items():
        for hint in hints:
            key = (mask & hint.mask, preferred and hint.preferred)
            if key[0]:
                reached[key] = max(reached.get(key, 0), score + hint.score)
    return reached
