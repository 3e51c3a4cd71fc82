"""Pressure and sensitivity of every node, summed over its residents, and what one more pod would cost.

Placing p on a node where the residents exert pressure P and have sensitivity S costs, in lost seconds per
second,

    p.sensitivity . P + p.aggressiveness . S

the first term suffered by p, the second by the residents. Both sums are kept per row, so the prediction for
all nodes is one product of a matrix with a vector.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.kube.interference import RESOURCES
from scheduler.cluster_state.columns import Row, Rows
from scheduler.interference.profile import MICRO, Traits

WIDTH = 2 * len(RESOURCES)


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted lost seconds per second by resource: suffered by the pod, and imposed on the residents."""

    suffered: dict[str, float]
    imposed: dict[str, float]

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self.suffered.values()) + sum(self.imposed.values())


class PressureMatrix:
    """int64[rows, 2 x resources]: pressure, then sensitivity, in millionths."""

    def __init__(self, capacity: int) -> None:
        self._sums = np.zeros((capacity, WIDTH), dtype=np.int64)
        self._own = np.zeros(capacity, dtype=np.int64)
        """Per row, what residents would cost themselves; left out of `resident_loss`."""

    def ensure(self, capacity: int) -> None:
        """Have at least this many rows."""
        extra = capacity - self._sums.shape[0]
        if extra > 0:
            self._sums = np.pad(self._sums, ((0, extra), (0, 0)))
            self._own = np.pad(self._own, (0, extra))

    def clear(self, row: Row) -> None:
        """Reset a row that holds no pod."""
        self._sums[row] = 0
        self._own[row] = 0

    def add(self, row: Row, traits: Traits, sign: int = 1) -> None:
        """A resident came, or with sign -1 went."""
        self._sums[row] += sign * np.concatenate([traits.aggressiveness, traits.sensitivity])
        self._own[row] += sign * int(traits.aggressiveness @ traits.sensitivity)

    def lost(self, probe: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
        """Millionths of lost seconds per second that placing a pod costs, per row; `probe` from `probe_of`."""
        return np.asarray(self._sums[rows] @ probe // MICRO, dtype=np.int64)

    def lost_by_type(self, probes: NDArray[np.int64], types: NDArray[np.int32], rows: Rows) -> NDArray[np.int64]:
        """The same where traits depend on the type of node: `probes` int64[types, WIDTH], `types` per row."""
        return np.asarray(np.einsum("ij,ij->i", self._sums[rows], probes[types]) // MICRO, dtype=np.int64)

    def cost(self, traits: Traits, row: Row) -> Cost:
        """The prediction for one row, term by term, in seconds."""
        pressure, sensitivity = np.split(self._sums[row], 2)
        scale = MICRO * MICRO
        return Cost(
            _named(traits.sensitivity * pressure / scale),
            _named(traits.aggressiveness * sensitivity / scale),
        )

    def pressure(self, row: Row) -> dict[str, float]:
        """Pressure by resource, where there is any."""
        return _named(self._sums[row, : len(RESOURCES)] / MICRO)

    def resident_loss(self, rows: Rows) -> NDArray[np.float64]:
        """Lost seconds per second that the residents of each row are predicted to cost one another."""
        sums = self._sums[rows].astype(np.float64)
        half = len(RESOURCES)
        mutual = np.einsum("ij,ij->i", sums[:, :half], sums[:, half:]) - self._own[rows]
        return np.asarray(mutual / (MICRO * MICRO), dtype=np.float64)


def probe_of(traits: Traits) -> NDArray[np.int64]:
    """The vector whose product with a row's sums is the predicted loss."""
    return np.concatenate([traits.sensitivity, traits.aggressiveness])


def _named(amounts: NDArray[np.float64]) -> dict[str, float]:
    return {name: float(amount) for name, amount in zip(RESOURCES, amounts, strict=True) if amount}
