"""Sums of victims and neighbours that grow by rows and are added up now and then. Bounded. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.profiles.merge import GROUPS, Evidence, Sums
from detector.histograms import Values

MOST = 1_000_000
"""Keys of victim, neighbour, resource, evidence and group; beyond, those of the least time are dropped."""
BUFFER_ROWS = 1_000_000
_BITS = (3, 2, 4)  # resource, evidence, group
_WORKLOAD_BITS = 20
_MOMENTS = 9


@dataclass(frozen=True, slots=True)
class Reported:
    """One victim in one report, or some, of shapes (rows,)."""

    victim: int | NDArray[np.int64]
    resource: int
    group: int
    seconds: float
    load: float | Values
    """Share of the node's CPUs that it used itself."""


class PairSums:
    """Rows of `controllers.profiles.merge.Sums`, compact."""

    def __init__(self) -> None:
        self.dropped = 0
        """Keys for which there was no room."""
        self._keys: NDArray[np.int64] = np.zeros(0, np.int64)
        self._moments: Values = np.zeros((_MOMENTS, 0))
        self._new: list[tuple[NDArray[np.int64], Values]] = []
        self._waiting = 0

    def __len__(self) -> int:
        self._compact()
        return len(self._keys)

    def add(
        self, told: Reported, evidence: Evidence, neighbours: NDArray[np.int64], pressure: Values, lost: Values
    ) -> None:
        """Add a victim's time beside each neighbour, its pressure and what was lost to it a second."""
        key = (told.victim << _WORKLOAD_BITS) + neighbours + 1
        for bits, part in zip(_BITS, (told.resource, int(evidence), told.group), strict=True):
            key = (key << bits) + part
        load = told.load
        moments = np.empty((_MOMENTS, len(key)))
        moments[0], moments[1], moments[3] = 1.0, pressure, lost
        np.multiply(pressure, pressure, out=moments[2])
        np.multiply(lost, pressure, out=moments[4])
        moments[5], moments[6] = load, load * load
        np.multiply(pressure, load, out=moments[7])
        np.multiply(lost, load, out=moments[8])
        moments *= told.seconds
        self._new.append((key, moments))
        self._waiting += len(key)
        if self._waiting >= BUFFER_ROWS:
            self._compact()

    def age(self, factor: float) -> None:
        """Let everything weigh `factor` of what it did."""
        self._compact()
        self._moments = self._moments * factor

    def forget(self, numbers: NDArray[np.int64]) -> None:
        """Drop all that was told of some workloads, as victims and as neighbours."""
        self._compact()
        victims, neighbours = np.divmod(self._keys >> sum(_BITS), 1 << _WORKLOAD_BITS)
        kept = ~(np.isin(victims, numbers) | np.isin(neighbours - 1, numbers))
        self._keys, self._moments = self._keys[kept], self._moments[:, kept]

    def of(self, resource: int) -> Sums:
        """Return the sums of one resource, each group of nodes as one node."""
        self._compact()
        rest, group = np.divmod(self._keys, GROUPS)
        rest, evidence = np.divmod(rest, 1 << _BITS[1])
        rest, of = np.divmod(rest, 1 << _BITS[0])
        own = of == resource
        victims, neighbours = np.divmod(rest[own], 1 << _WORKLOAD_BITS)
        columns: list[Any] = list(self._moments[:, own])
        bins = np.zeros(len(victims), np.int64)
        return Sums(victims, neighbours - 1, evidence[own], bins, group[own], *columns)

    def _compact(self) -> None:
        if not self._new:
            return
        keys = np.concatenate([self._keys, *(key for key, _ in self._new)])
        moments = np.concatenate([self._moments, *(columns for _, columns in self._new)], axis=1)
        known, place = np.unique(keys, return_inverse=True)
        summed: Values = np.stack([np.bincount(place, weights=row, minlength=len(known)) for row in moments]).astype(
            np.float64
        )
        if len(known) > MOST:
            kept = np.sort(np.argpartition(-summed[0], MOST)[:MOST])
            self.dropped += len(known) - MOST
            known, summed = known[kept], summed[:, kept]
        self._keys, self._moments = known, summed
        self._new, self._waiting = [], 0
