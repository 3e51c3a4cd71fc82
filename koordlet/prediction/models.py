"""Models of usage: for each workload a histogram of CPU and one of memory, made, aged and forgotten together. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from detector.histograms import (
    CPU_BUCKETS,
    CPU_HALF_LIFE_SECONDS,
    MEMORY_BUCKETS,
    MEMORY_HALF_LIFE_SECONDS,
    DecayingHistograms,
    StoredHistogram,
    Values,
)

NODE = "__node__"
"""Model of the whole node."""
SYSTEM = "sys"
"""Item of the node outside its pods."""
CPU_QUANTILE = 0.95
MEMORY_QUANTILE = 0.98
SAVED_PER_STEP = 12
"""Checkpoints written in one step."""


def node_item(item: str) -> str:
    """Return the name of the model of a part of the node: a priority class, `""` for none, or SYSTEM."""
    return f"__node-{item}__"


@dataclass(frozen=True, slots=True)
class Peak:
    """Predicted peak, without a safety margin."""

    cpu_millicores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model as its checkpoint holds it."""

    name: str
    updated_seconds: float
    cpu: StoredHistogram
    memory: StoredHistogram


@dataclass(slots=True)
class _Row:
    row: int
    updated_seconds: float
    saved_seconds: float


class PeakModels:
    """Models by name: the uid of a pod, NODE, or a `node_item`. Times are wall-clock seconds."""

    def __init__(self) -> None:
        self.cpu = DecayingHistograms(CPU_BUCKETS, CPU_HALF_LIFE_SECONDS)
        self.memory = DecayingHistograms(MEMORY_BUCKETS, MEMORY_HALF_LIFE_SECONDS)
        self._rows: dict[str, _Row] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def train(self, names: Sequence[str], cores: Values, memory_bytes: Values, now_seconds: float) -> None:
        """Add a sample to each model, in cores and bytes; NaN is not measured, and neither makes a model."""
        measured = np.flatnonzero(np.isfinite(cores) | np.isfinite(memory_bytes))
        rows = np.array([self._row_of(names[index], now_seconds).row for index in measured.tolist()], dtype=np.intp)
        self.cpu.add(rows, cores[measured], now_seconds)
        self.memory.add(rows, memory_bytes[measured], now_seconds)

    def peaks(self, names: Iterable[str]) -> dict[str, Peak]:
        """Return the peaks of those models that have samples of both, by name: p95 of CPU and p98 of memory."""
        known = [name for name in names if name in self._rows]
        rows = np.array([self._rows[name].row for name in known], dtype=np.intp)
        if not known:
            return {}
        cores = self.cpu.percentile(rows, CPU_QUANTILE)
        memory = self.memory.percentile(rows, MEMORY_QUANTILE)
        empty = self.cpu.is_empty(rows) | self.memory.is_empty(rows)
        return {
            name: Peak(int(cores[position] * 1000), int(memory[position]))
            for position, name in enumerate(known)
            if not empty[position]
        }

    def expire(self, before_seconds: float, gone_before_seconds: float, present: Collection[str]) -> list[str]:
        """Forget the models without a sample since a time, those that are not `present` since another; return their
        names."""
        gone = [
            name
            for name, row in self._rows.items()
            if row.updated_seconds < (before_seconds if name in present else gone_before_seconds)
        ]
        for name in gone:
            self._free.append(self._rows.pop(name).row)
        return gone

    def to_save(self, before_seconds: float, now_seconds: float) -> list[StoredModel]:
        """Return up to SAVED_PER_STEP models last saved before a time, oldest first, and count them as saved."""
        due = sorted(
            (row.saved_seconds, name)
            for name, row in self._rows.items()
            if row.saved_seconds <= before_seconds and row.updated_seconds > row.saved_seconds
        )
        stored = []
        for _, name in due[:SAVED_PER_STEP]:
            row = self._rows[name]
            row.saved_seconds = now_seconds
            stored.append(StoredModel(name, row.updated_seconds, self.cpu.stored(row.row), self.memory.stored(row.row)))
        return stored

    def load(self, stored: StoredModel, now_seconds: float) -> None:
        """Take over a stored model, which may go unseen from now on as long as any other. Raises ValueError."""
        row = self._row_of(stored.name, now_seconds)
        try:
            self.cpu.load(row.row, stored.cpu)
            self.memory.load(row.row, stored.memory)
        except ValueError:
            self._free.append(self._rows.pop(stored.name).row)
            raise
        row.saved_seconds = now_seconds

    def _row_of(self, name: str, now_seconds: float) -> _Row:
        known = self._rows.get(name)
        if known is None:
            row = self._free.pop() if self._free else len(self._rows)
            for histograms in (self.cpu, self.memory):
                histograms.resize(max(row + 1, 32 * (row // 32 + 1)))
                histograms.clear(row)
            known = self._rows[name] = _Row(row, now_seconds, float("-inf"))
        known.updated_seconds = now_seconds
        return known
