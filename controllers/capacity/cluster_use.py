"""Projection: what the cluster's nodes have, what pods of each priority class asked for and got, and whose they are.

Sums are kept by differences: a change of one object takes its old part out and puts the new one in, in whole millicores
and bytes, so that nothing drifts. Owners are namespaces, as quotas know them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from api.crds import NodeMetric
from api.kube.resources import CPU
from api.protocol import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from api.qos import PriorityBand
from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.capacity.pods import (
    MOST,
    Amounts,
    amount,
    amounts,
    band_with_default,
    qos_with_default,
    requests_of,
    total,
)
from controllers.capacity.usage import stated_band
from controllers.kinds import NODE, NODE_METRIC, POD, Node, Pod
from controllers.runtime.view import Projection
from controllers.runtime.writes import kind_name

ALLOCATABLE, REQUESTED, PENDING, USED = "allocatable", "requested", "pending", "used"
SYSTEM = "system"
"""Use outside pods, where a priority class stands."""
_NAMES = {
    PriorityBand.PROD: "prod",
    PriorityBand.MID: "mid",
    PriorityBand.BATCH: "batch",
    PriorityBand.FREE: "free",
}
LENT = frozenset({"mid", "batch", "free"})
OTHER = "[other]"
"""Owners without sums of their own; no namespace is called so."""
"""Classes that live on what prod leaves: only their owners are told apart."""


class Cell(NamedTuple):
    """What a sum is of; `namespace` is empty for the sum over all."""

    state: str
    priority: str
    namespace: str = ""


Part = tuple[tuple[tuple[Cell, ...], Amounts], ...]
"""Cells and what is added to each."""


@dataclass
class ClusterUse:
    """Sums in millicores and bytes; goes on to change with the cluster."""

    sums: dict[Cell, Amounts] = field(default_factory=dict)


class ClusterUseTable(Projection[ClusterUse]):
    """Keeps the sums."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, POD, NODE_METRIC)

    def __init__(self) -> None:
        self._use = ClusterUse()
        self._parts: dict[str, dict[Key, Part]] = {kind_name(kind): {} for kind in self.watches}

    def value(self) -> ClusterUse:
        """Return the sums."""
        return self._use

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in changes."""
        name = kind_name(resource)
        part_of, parts = _PART_OF[name], self._parts[name]
        for change in changes:
            new: Part = () if change.new is None else part_of(change.new)
            old = parts.get(change.key, ())
            if new == old:
                continue
            self._add(old, -1)
            self._add(new, 1)
            if new:
                parts[change.key] = new
            else:
                del parts[change.key]

    def _add(self, part: Part, sign: int) -> None:
        sums = self._use.sums
        for cells, (cpu, memory) in part:
            for cell in cells:
                before = sums.get(cell, (0, 0))
                after = (before[0] + sign * cpu, before[1] + sign * memory)
                if after == (0, 0):
                    sums.pop(cell, None)
                else:
                    sums[cell] = after


def part_of_node(node: Node) -> Part:
    """Return what a node has: of its own, and as extended resources of the lower classes."""
    have = node.status.allocatable
    found = {
        "prod": amounts(have if CPU in have else node.status.capacity),
        "mid": (amount(have, MID_CPU, 1), amount(have, MID_MEMORY, 1)),
        "batch": (amount(have, BATCH_CPU, 1), amount(have, BATCH_MEMORY, 1)),
    }
    return tuple((_cells(ALLOCATABLE, priority, ""), value) for priority, value in found.items() if any(value))


def part_of_pod(pod: Pod) -> Part:
    """Return what a pod asks for, with or without a node; nothing once it ended."""
    if pod.status.phase not in ("Running", "Pending") or pod.metadata.deletion_timestamp is not None:
        return ()
    priority = _NAMES[band_with_default(pod, qos_with_default(pod))]
    asked = _asked(pod, priority)
    state = REQUESTED if pod.spec.node_name else PENDING
    return _part(state, priority, pod.metadata.namespace, asked) if any(asked) else ()


@lru_cache(4096)
def _part(state: str, priority: str, namespace: str, asked: Amounts) -> Part:
    """Return the part of a pod; replicas share one."""
    return ((_cells(state, priority, namespace), asked),)


def _asked(pod: Pod, priority: str) -> Amounts:
    """Return requests of extended resources where the pod has any, else of plain ones."""
    names = {"batch": (BATCH_CPU, BATCH_MEMORY), "mid": (MID_CPU, MID_MEMORY)}.get(priority)
    if names is not None:
        lists = [each.resources.requests for each in pod.spec.containers]
        extended = total((amount(each, names[0], 1), amount(each, names[1], 1)) for each in lists)
        if any(extended):
            return min(extended[0], MOST), min(extended[1], MOST)
    return requests_of(pod)


def part_of_report(report: NodeMetric) -> Part:
    """Return what the pods of a node use, and what is used outside them."""
    status = report.status
    found: dict[tuple[str, str], Amounts] = {}
    for pod in status.pods_metric:
        key = (_NAMES[stated_band(pod.priority, pod.qos)], pod.namespace)
        found[key] = total((found.get(key, (0, 0)), amounts(pod.pod_usage.resources)))
    if status.node_metric is not None:
        found[SYSTEM, ""] = amounts(status.node_metric.system_usage.resources)
    return tuple((_cells(USED, *key), value) for key, value in found.items() if any(value))


@lru_cache(4096)
def _cells(state: str, priority: str, namespace: str) -> tuple[Cell, ...]:
    """Return the sums that a part counts to: the whole, and the owner's."""
    every = Cell(state, priority)
    return (every, Cell(state, priority, namespace)) if priority in LENT and namespace else (every,)


_PART_OF: Mapping[str, Any] = {
    kind_name(NODE): part_of_node,
    kind_name(POD): part_of_pod,
    kind_name(NODE_METRIC): part_of_report,
}


def worst_owners(sums: Mapping[Cell, Amounts], most: int) -> dict[Cell, Amounts]:
    """Return the sums of owners: of those that ask for or use most CPU, the others together as `[other]`."""
    weights: dict[str, int] = {}
    owned = {cell: value for cell, value in sums.items() if cell.namespace}
    for cell, (cpu, _) in owned.items():
        weights[cell.namespace] = weights.get(cell.namespace, 0) + cpu
    kept = set(sorted(weights, key=lambda name: (-weights[name], name))[:most])
    found: dict[Cell, Amounts] = {}
    for cell, value in owned.items():
        shown = cell if cell.namespace in kept else cell._replace(namespace=OTHER)
        found[shown] = total((found.get(shown, (0, 0)), value))
    return found


def whole(sums: Mapping[Cell, Amounts]) -> Iterable[tuple[Cell, Amounts]]:
    """Return the sums over all owners."""
    return ((cell, value) for cell, value in sums.items() if not cell.namespace)
