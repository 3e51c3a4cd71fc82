"""NodeResourcesBalancedAllocation: 100 times one minus the deviation of the fractions of each resource taken."""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.resources import CPU, MEMORY
from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import MAX_SCORE, Attempt, Plugin, Scores


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of NodeResourcesBalancedAllocation."""

    resources: tuple[str, ...] = (CPU, MEMORY)
    """Resources that should fill evenly."""


@dataclass(frozen=True, slots=True, eq=False)
class BalancedDemand:
    """A class's requests in the balanced columns."""

    columns: NDArray[np.intp]
    amounts: NDArray[np.int64]


class NodeResourcesBalancedAllocation(Plugin[BalancedDemand]):
    """Scores by the deviation between resources."""

    name = "NodeResourcesBalancedAllocation"
    rank = 310

    def prepare(self, info: PodInfo) -> BalancedDemand | None:
        """Columns and amounts; extended resources that the pod does not ask for have no say."""
        config: Config = self.config
        names = [name for name in config.resources if name in (CPU, MEMORY) or info.requests.get(name, 0) > 0]
        if not any(info.requests.get(name, 0) > 0 for name in names):
            # A pod that asks for nothing balances nothing.
            return None
        column = self.handle.snapshot.resource_column
        return BalancedDemand(
            np.array([column(name) for name in names], dtype=np.intp),
            np.array([info.requests.get(name, 0) for name in names], dtype=np.int64),
        )

    def score(self, attempt: Attempt, spec: BalancedDemand, rows: Rows) -> Scores:
        """trunc((1 - deviation) * 100) per row."""
        offered = attempt.snapshot.allocatable[rows].take(spec.columns, axis=1)
        taken = attempt.requested(rows).take(spec.columns, axis=1) + spec.amounts
        return balance(taken, offered)


def balance(taken: NDArray[np.int64], offered: NDArray[np.int64]) -> Scores:
    """Score from int64[rows, resources]; fractions are capped at 1, resources not offered are left out."""
    if taken.shape[1] == 2 and bool((offered > 0).all()):
        fractions = np.minimum(taken / offered, 1.0)
        deviation = np.abs(fractions[:, 0] - fractions[:, 1]) / 2
        return np.asarray((1.0 - deviation) * MAX_SCORE, dtype=np.float64).astype(np.int64)
    known = offered > 0
    count = known.sum(axis=1)
    fractions = np.minimum(np.where(known, taken / np.where(known, offered, 1), 0.0), 1.0)
    divisor = np.maximum(count, 1)
    mean = fractions.sum(axis=1) / divisor
    spread = np.where(known, fractions - mean[:, None], 0.0)
    deviation = np.sqrt((spread**2).sum(axis=1) / divisor)
    return np.asarray((1.0 - deviation) * MAX_SCORE, dtype=np.float64).astype(np.int64)
