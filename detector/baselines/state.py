"""Baselines as a value without losing a bit, for a checkpoint; files are JSON (`detector/baselines/file.py`)."""

import msgspec
import numpy as np

from detector.baselines.cells import Cells
from detector.baselines.learner import Baselines
from detector.baselines.values import BaselinePolicy, WorkloadKey
from detector.checkpoint import Array, pack, unpack

_COLUMNS = ("mass", "samples", "first", "last", "place")


class BaselinesState(msgspec.Struct, frozen=True):
    """Everything that `Baselines` remembers; counts as the flat places and values of those above zero."""

    policy: BaselinePolicy
    refused: int
    landmark: float
    columns: dict[str, Array]
    counted: tuple[Array, Array]
    workloads: list[WorkloadKey]
    signals: list[str]
    quantiles: Array
    refreshed: Array


def baselines_state(baselines: Baselines) -> BaselinesState:
    """The baselines as a value."""
    cells, count = baselines.cells, baselines.cells.count
    counts = cells.counts[:count].ravel()
    used = np.flatnonzero(counts)
    return BaselinesState(
        policy=baselines.policy,
        refused=baselines.refused,
        landmark=cells.landmark,
        columns={name: pack(getattr(cells, name)[:count]) for name in _COLUMNS},
        counted=(pack(used), pack(counts[used])),
        workloads=list(baselines.workloads),
        signals=list(baselines.signals),
        quantiles=pack(baselines.quantiles[:count]),
        refreshed=pack(baselines.refreshed[:count]),
    )


def restore_baselines(state: BaselinesState, policy: BaselinePolicy) -> Baselines:
    """Baselines that go on exactly as those of the state would have; under another policy with the old half-life."""
    baselines = Baselines(msgspec.structs.replace(policy, half_life_seconds=state.policy.half_life_seconds))
    used, counts = (unpack(array) for array in state.counted)
    columns = {name: unpack(state.columns[name]) for name in _COLUMNS}
    baselines.cells = Cells.restored(state.policy.half_life_seconds, baselines.cells.bins, state.landmark, columns)
    baselines.cells.counts[: baselines.cells.count].reshape(-1)[used] = counts
    baselines.refused = state.refused
    baselines.workloads = {key: number for number, key in enumerate(state.workloads)}
    baselines.signals = {name: number for number, name in enumerate(state.signals)}
    baselines.quantiles, baselines.refreshed = unpack(state.quantiles), unpack(state.refreshed)
    return baselines
