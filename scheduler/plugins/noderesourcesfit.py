"""NodeResourcesFit: requests must fit what is left of a node, and fuller or emptier nodes score by strategy.

Arithmetic as in the stock scheduler: integers; scores count pods without requests with 100 millicores and
200 MiB; a resource that the node lacks (or, beyond cpu and memory, that the pod does not ask for) has no say.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Pod
from api.kube.resources import CPU, MEMORY, PODS
from api.protocol import ANNOTATION_RESERVATION_ALLOCATED, BATCH_CPU, BATCH_MEMORY
from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import MAX_SCORE, Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Scores
from scheduler.reservation.ledger import RESERVATIONS
from scheduler.reservation.operating_pod import operates

SCORED = (CPU, MEMORY, BATCH_CPU, BATCH_MEMORY)


class ScoringStrategy(StrEnum):
    """Preference among nodes by allocation."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class ShapePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point of the piecewise linear function from utilisation (percent) to score (0 to 10)."""

    utilization: int
    score: int


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of NodeResourcesFit."""

    strategy: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED
    """Function from allocation to score."""
    resources: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(SCORED, 1))
    """Weight of each resource in the score."""
    shape: tuple[ShapePoint, ...] = (ShapePoint(0, 0), ShapePoint(100, 10))
    """For RequestedToCapacityRatio, by growing utilisation."""
    ignored_resources: tuple[str, ...] = ()
    """Extended resources that need not fit."""
    ignored_resource_groups: tuple[str, ...] = ()
    """Domains of extended resources that need not fit (`example.com`)."""


@dataclass(frozen=True, slots=True, eq=False)
class FitDemand:
    """A class's requests by column."""

    columns: NDArray[np.intp]
    """Columns that must fit, `pods` first."""
    amounts: NDArray[np.int64]
    names: tuple[str, ...]
    bits: NDArray[np.int64]
    score_columns: NDArray[np.intp]
    score_amounts: NDArray[np.int64]
    weights: NDArray[np.int64]
    nonzero_sources: tuple[tuple[int, int], ...]
    """(position among the score columns, column of `snapshot.nonzero`) for cpu and memory."""


class NodeResourcesFit(Plugin[FitDemand]):
    """Filters by what is left and scores by what would be taken."""

    name = "NodeResourcesFit"
    rank = 150
    requeue_on = frozenset({"nodes/add", "nodes/update", "pods/delete", "pods/update"})

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self._strategy = config.strategy
        self._shape = (
            np.array([point.utilization for point in config.shape], dtype=np.int64),
            np.array([point.score * 10 for point in config.shape], dtype=np.int64),
        )

    def prepare(self, info: PodInfo) -> FitDemand:
        """Look up the columns of everything the pod asks for."""
        config: Config = self.config
        snapshot = self.handle.snapshot
        wanted = {PODS: 1} | {
            name: amount for name, amount in info.requests.items() if amount > 0 and not self._ignored(name)
        }
        scored = [
            (name, weight)
            for name, weight in config.resources.items()
            if name in (CPU, MEMORY) or info.requests.get(name, 0) > 0
        ]
        nonzero = {CPU: info.cls.nonzero[0], MEMORY: info.cls.nonzero[1]}
        sources = {CPU: 0, MEMORY: 1}
        return FitDemand(
            np.array([snapshot.resource_column(name) for name in wanted], dtype=np.intp),
            np.array(list(wanted.values()), dtype=np.int64),
            tuple(wanted),
            1 << np.arange(len(wanted), dtype=np.int64),
            np.array([snapshot.resource_column(name) for name, _ in scored], dtype=np.intp),
            np.array([nonzero.get(name, info.requests.get(name, 0)) for name, _ in scored], dtype=np.int64),
            np.array([weight for _, weight in scored], dtype=np.int64),
            tuple((index, sources[name]) for index, (name, _) in enumerate(scored) if name in sources),
        )

    def queue_hint(self, info: PodInfo, event: ObjectEvent) -> bool:
        """Wake for a node, or a pod's node, that has room now; with reservations, what is room depends on the pod."""
        item = event.before if event.after is None else event.after
        if self.handle.objects(RESERVATIONS) or (isinstance(item, Pod) and _may_give_reserved_room(item)):
            return True
        name = item.spec.node_name if isinstance(item, Pod) else event.key.name
        row = self.handle.snapshot.row(name) if name else None
        if row is None:
            return not name
        wanted = self.handle.snapshot.vector(info)
        free = self.handle.snapshot.allocatable[row] - self.handle.snapshot.requested[row]
        fits = bool(((wanted <= free) | (wanted == 0)).all())
        return fits or any(self._ignored(resource) for resource in info.requests)

    def reasons(self, spec: FitDemand) -> tuple[Reason, ...]:
        """One reason per resource."""
        return tuple(Reason("Too many pods" if name == PODS else f"Insufficient {name}") for name in spec.names)

    def filter(self, attempt: Attempt, spec: FitDemand, rows: Rows) -> Bits:
        """Sets the bit of every resource that does not fit."""
        taken = attempt.requested(rows).take(spec.columns, axis=1)
        offered = attempt.snapshot.allocatable[rows].take(spec.columns, axis=1)
        return np.asarray((taken + spec.amounts > offered) @ spec.bits, dtype=np.int64)

    def score(self, attempt: Attempt, spec: FitDemand, rows: Rows) -> Scores:
        """Weighted mean over resources, by the configured strategy."""
        offered = attempt.snapshot.allocatable[rows].take(spec.score_columns, axis=1)
        taken = attempt.requested(rows).take(spec.score_columns, axis=1)
        nonzero = attempt.snapshot.nonzero[rows]
        for position, source in spec.nonzero_sources:
            taken[:, position] = nonzero[:, source]
        taken += spec.score_amounts
        return allocation_score(self._strategy, self._shape, taken, offered, spec.weights)

    def _ignored(self, name: str) -> bool:
        domain, slash, _ = name.partition("/")
        config: Config = self.config
        return bool(slash) and (name in config.ignored_resources or domain in config.ignored_resource_groups)


def _may_give_reserved_room(pod: Pod) -> bool:
    """Return whether the pod acts as a reservation, or says that it uses one."""
    return operates(pod) or ANNOTATION_RESERVATION_ALLOCATED in pod.metadata.annotations


def allocation_score(
    strategy: ScoringStrategy,
    shape: tuple[NDArray[np.int64], NDArray[np.int64]],
    taken: NDArray[np.int64],
    offered: NDArray[np.int64],
    weights: NDArray[np.int64],
) -> Scores:
    """Weighted integer mean of per-resource scores, int64[rows].

    `taken` (with the pod) and `offered` are int64[rows, resources]. A resource with nothing offered has no
    weight; without any, the score is 0.
    """
    known = offered > 0
    capacity = np.where(known, offered, 1)
    if strategy is ScoringStrategy.LEAST_ALLOCATED:
        each = np.maximum(capacity - taken, 0) * MAX_SCORE // capacity
    elif strategy is ScoringStrategy.MOST_ALLOCATED:
        each = np.minimum(taken, capacity) * MAX_SCORE // capacity
    else:
        each = _shaped(shape, taken, capacity)
        # The stock scheduler leaves out resources that score zero here, and rounds the mean.
        known = known & (each > 0)
        total = (each * known) @ weights
        weight = known @ weights
        return _rounded(total, weight)
    weight = known @ weights
    total = (each * known) @ weights
    return np.asarray(np.where(weight > 0, total // np.maximum(weight, 1), 0), dtype=np.int64)


def _shaped(
    shape: tuple[NDArray[np.int64], NDArray[np.int64]], taken: NDArray[np.int64], capacity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Piecewise linear in integer utilisation; over capacity counts as full."""
    utilization = np.where(taken > capacity, MAX_SCORE, taken * MAX_SCORE // capacity)
    levels, scores = shape
    upper = np.searchsorted(levels, utilization, side="left").clip(1, max(len(levels) - 1, 1))
    if len(levels) == 1:
        return np.full_like(utilization, scores[0])
    low, high = levels[upper - 1], levels[upper]
    rise = (scores[upper] - scores[upper - 1]) * (utilization.clip(levels[0], levels[-1]) - low)
    # Go's division truncates towards zero, numpy's towards minus infinity.
    step = np.sign(rise) * (np.abs(rise) // np.maximum(high - low, 1))
    return np.asarray(scores[upper - 1] + step, dtype=np.int64)


def _rounded(total: NDArray[Any], weight: NDArray[Any]) -> Scores:
    mean = np.where(weight > 0, total / np.maximum(weight, 1), 0.0)
    return np.floor(mean + 0.5).astype(np.int64)
