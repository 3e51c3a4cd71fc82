"""NodeResourcesFitPlus: packs some resources and spreads others: each requested resource scores by its own strategy."""

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from api.kube.resources import CPU, MEMORY
from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import MAX_SCORE, Attempt, Handle, Plugin, Scores

NONZERO = {CPU: 0, MEMORY: 1}
"""Columns of `snapshot.nonzero`."""


class ResourceStrategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scoring strategy and weight of one resource."""

    type: Literal["MostAllocated", "LeastAllocated"] = "LeastAllocated"
    weight: int = 1


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of NodeResourcesFitPlus."""

    resources: dict[str, ResourceStrategy] = msgspec.field(default_factory=dict)
    """Resources that score."""


@dataclass(frozen=True, slots=True)
class ResourceTerm:
    """One resource that the class asks for and the settings know."""

    column: int
    nonzero: int | None
    """Column of `snapshot.nonzero`, where defaults count for containers without requests."""
    amount: int
    packs: bool
    weight: int


class NodeResourcesFitPlus(Plugin[tuple[ResourceTerm, ...]]):
    """Scores by several strategies at once."""

    name = "NodeResourcesFitPlus"
    rank = 480
    enabled = False

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)

    def prepare(self, info: PodInfo) -> tuple[ResourceTerm, ...]:
        """The resources that the class asks for; cpu and memory with the defaults for what is not stated."""
        asked = {**info.requests, CPU: info.cls.nonzero[0], MEMORY: info.cls.nonzero[1]}
        resources: dict[str, ResourceStrategy] = self.config.resources
        return tuple(
            ResourceTerm(
                self.handle.snapshot.resource_column(name),
                NONZERO.get(name),
                asked[name],
                strategy.type == "MostAllocated",
                strategy.weight,
            )
            for name, strategy in resources.items()
            if asked.get(name, 0) > 0
        )

    def score(self, attempt: Attempt, spec: tuple[ResourceTerm, ...], rows: Rows) -> Scores:
        """Weighted mean over the terms; without any 100."""
        snapshot = attempt.snapshot
        offered, taken = snapshot.allocatable[rows], attempt.requested(rows)
        total = np.zeros(offered.shape[0], dtype=np.int64)
        weight = sum(term.weight for term in spec)
        if weight == 0:
            return total + MAX_SCORE
        for term in spec:
            before = taken[:, term.column] if term.nonzero is None else snapshot.nonzero[rows, term.nonzero]
            used, capacity = before + term.amount, offered[:, term.column]
            part = np.minimum(used, capacity) if term.packs else np.maximum(capacity - used, 0)
            total += np.where(capacity > 0, part * MAX_SCORE // np.maximum(capacity, 1), 0) * term.weight
        scores: Scores = total // weight
        return scores
