"""Cells: sketches in rows, one for each workload, signal and load; storage, ageing and index.

Ageing is forward decay (Cormode et al., ICDE 2009): a sample at time t weighs 2**((t - landmark) / half life), so
old rows are never touched; weights as of a time are those numbers divided by that time's own weight.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.baselines.levels import Levels
from detector.baselines.sketch import BUCKETS

_RESCALE_HALF_LIVES = 16.0
"""Well inside what a 32-bit float holds beside a weight of one."""
_ABSENT = -1


class Cells:
    """Growing columns, one row a cell, and the index (workload, signal, bin) -> row."""

    __slots__ = (
        "_index",
        "_last",
        "count",
        "counts",
        "first",
        "half_life",
        "landmark",
        "levels",
        "mass",
        "place",
        "samples",
    )

    def __init__(self, half_life_seconds: float, bins: int, period_seconds: float = 60.0) -> None:
        self.half_life = half_life_seconds
        self.levels = Levels(half_life_seconds, period_seconds)
        self.landmark = 0.0
        self.count = 0
        self.counts: NDArray[np.float32] = np.zeros((0, BUCKETS), dtype=np.float32)
        self.mass: NDArray[np.float64] = np.zeros(0)
        self.samples: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.first: NDArray[np.float64] = np.zeros(0)
        self._last: NDArray[np.float64] = np.zeros(0)
        self.place: NDArray[np.int32] = np.zeros((0, 3), dtype=np.int32)
        self._index: NDArray[np.int32] = np.full((0, 0, bins), _ABSENT, dtype=np.int32)

    @classmethod
    def restored(
        cls,
        half_life_seconds: float,
        bins: int,
        landmark: float,
        columns: Mapping[str, NDArray[Any]],
        period_seconds: float = 60.0,
    ) -> "Cells":
        """Cells whose `mass`, `samples`, `first`, `last` and `place` these were; `counts` and levels are zero."""
        cells = cls(half_life_seconds, bins, period_seconds)
        cells.landmark, cells.count = landmark, len(columns["mass"])
        cells.counts = np.zeros((cells.count, BUCKETS), dtype=np.float32)
        cells.mass, cells.samples = columns["mass"], columns["samples"]
        cells.first, cells._last, cells.place = columns["first"], columns["last"], columns["place"]
        cells.levels = Levels(half_life_seconds, period_seconds, cells.count)
        if cells.count:
            cells._extend_index(int(cells.place[:, 0].max()), int(cells.place[:, 1].max()))
            cells._index[cells.place[:, 0], cells.place[:, 1], cells.place[:, 2]] = np.arange(cells.count)
        return cells

    @property
    def bins(self) -> int:
        """Bins of load for each workload and signal."""
        return int(self._index.shape[2])

    @property
    def indexed(self) -> int:
        """Workloads that the index has room for."""
        return int(self._index.shape[0])

    @property
    def last(self) -> NDArray[np.float64]:
        """Time of the last sample of each cell, in seconds."""
        return self._last

    def weight_at(self, now_seconds: float) -> float:
        """Weight of a sample taken at `now_seconds`, in the unit of `mass`; times before the landmark count as it."""
        return float(np.exp2(min(max(now_seconds - self.landmark, 0.0) / self.half_life, 1000.0)))

    def advance(self, now_seconds: float) -> None:
        """Move the landmark up before weights outgrow their floats."""
        if not self.count:
            self.landmark = now_seconds
        elif (now_seconds - self.landmark) / self.half_life > _RESCALE_HALF_LIVES:
            factor = 1.0 / self.weight_at(now_seconds)
            self.counts *= np.float32(factor)
            self.mass *= factor
            self.landmark = now_seconds

    def find(self, workloads: NDArray[np.int64], signal: int, bins: NDArray[np.int64]) -> NDArray[np.int32]:
        """Row of each (workload, signal, bin), -1 where there is none; workload -1 is unknown."""
        if signal >= self._index.shape[1] or not self._index.shape[0]:
            return np.full(len(workloads), _ABSENT, dtype=np.int32)
        known = (workloads >= 0) & (workloads < self._index.shape[0])
        rows = self._index[np.where(known, workloads, 0), signal, bins]
        return np.where(known, rows, np.int32(_ABSENT))

    def make(self, workloads: NDArray[np.int64], signal: int, bins: NDArray[np.int64], limit: int) -> int:
        """Create the cells that are missing, up to `limit` in all; return how many found no room."""
        wanted = np.stack([workloads, np.full_like(workloads, signal), bins], axis=1)
        missing = np.unique(wanted[self.find(workloads, signal, bins) == _ABSENT], axis=0)
        admitted = missing[: max(limit - self.count, 0)]
        # Only for what has cells: workloads that find no room would make an index larger than all cells.
        if not len(admitted):
            return len(missing)
        self._extend_index(int(admitted[:, 0].max()), signal)
        self._extend_rows(self.count + len(admitted))
        rows = np.arange(self.count, self.count + len(admitted))
        self.place[rows] = admitted
        self._index[admitted[:, 0], admitted[:, 1], admitted[:, 2]] = rows
        self.count += len(admitted)
        return len(missing) - len(admitted)

    def add(self, rows: NDArray[np.int32], buckets: NDArray[np.int64], now_seconds: float) -> None:
        """One sample for each row; those of a row that occurs more than once make one together.

        What the replicas of a workload show in one second is one thing that happened, seen many times.
        """
        if not len(rows):
            return
        parts = self.weight_at(now_seconds) / np.bincount(rows)[rows]
        np.add.at(self.counts, (rows, buckets), parts.astype(np.float32))
        np.add.at(self.mass, rows, parts)
        fresh = self.samples[rows] == 0
        self.first[rows[fresh]] = now_seconds
        self.samples[rows] += 1
        self._last[rows] = np.maximum(self._last[rows], now_seconds)

    def restart(self, rows: NDArray[np.int32]) -> None:
        """Let these cells forget what they counted."""
        self.counts[rows] = 0.0
        self.mass[rows] = 0.0

    def keep(self, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        """Drop all other cells; numbers workloads anew and answers the old numbers in the new order."""
        workloads, renumbered = np.unique(self.place[rows, 0], return_inverse=True)
        self.counts, self.mass, self.samples = self.counts[rows], self.mass[rows], self.samples[rows]
        self.first, self._last, self.place = self.first[rows], self._last[rows], self.place[rows]
        self.place[:, 0] = renumbered
        self.levels.keep(rows)
        self.count = len(rows)
        self._index = np.full((len(workloads), *self._index.shape[1:]), _ABSENT, dtype=np.int32)
        self._index[self.place[:, 0], self.place[:, 1], self.place[:, 2]] = np.arange(self.count)
        return workloads

    def _extend_index(self, workload: int, signal: int) -> None:
        have = self._index.shape
        if workload < have[0] and signal < have[1]:
            return
        rows = max(have[0], workload + 1 + workload // 2)
        grown = np.full((rows, max(have[1], signal + 1), have[2]), _ABSENT, dtype=np.int32)
        grown[: have[0], : have[1]] = self._index
        self._index = grown

    def _extend_rows(self, rows: int) -> None:
        have = len(self.mass)
        if rows <= have:
            return
        more = max(rows + rows // 2, 64) - have
        self.counts = np.concatenate([self.counts, np.zeros((more, BUCKETS), dtype=np.float32)])
        self.mass = np.concatenate([self.mass, np.zeros(more)])
        self.samples = np.concatenate([self.samples, np.zeros(more, dtype=np.int64)])
        self.first = np.concatenate([self.first, np.zeros(more)])
        self._last = np.concatenate([self._last, np.zeros(more)])
        self.place = np.concatenate([self.place, np.zeros((more, 3), dtype=np.int32)])
        self.levels.extend(more)
