"""Baselines as a value without losing a bit, for a checkpoint; files are JSON (`detector/baselines/file.py`)."""

import msgspec
import numpy as np

from detector.baselines.cells import Cells
from detector.baselines.learner import Baselines
from detector.baselines.levels import middle_octave
from detector.baselines.values import BaselinePolicy, ToldTime, WorkloadKey
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
    levels: dict[str, Array] = {}
    told: tuple[ToldTime, ...] = ()


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
        levels={name: pack(column[:count]) for name, column in cells.levels.columns.items()},
        told=baselines.told,
    )


def restore_baselines(state: BaselinesState, policy: BaselinePolicy) -> Baselines:
    """Baselines that go on exactly as those of the state would have; under another policy with the old half-life."""
    baselines = Baselines(msgspec.structs.replace(policy, half_life_seconds=state.policy.half_life_seconds))
    used, counts = (unpack(array) for array in state.counted)
    columns = {name: unpack(state.columns[name]) for name in _COLUMNS}
    cells = Cells.restored(
        state.policy.half_life_seconds, baselines.cells.bins, state.landmark, columns, policy.period_seconds
    )
    cells.counts[: cells.count].reshape(-1)[used] = counts
    _restore_levels(cells, state, policy)
    baselines.cells = cells
    baselines.refused, baselines.told = state.refused, state.told
    baselines.workloads = {key: number for number, key in enumerate(state.workloads)}
    baselines.signals = {name: number for number, name in enumerate(state.signals)}
    quantiles, refreshed = unpack(state.quantiles), unpack(state.refreshed)
    if quantiles.shape[1] == baselines.quantiles.shape[1]:
        baselines.quantiles, baselines.refreshed = quantiles, refreshed
    else:  # an earlier version's: those of the sketches as they are
        baselines.remake_quantiles()
    return baselines


def _restore_levels(cells: Cells, state: BaselinesState, policy: BaselinePolicy) -> None:
    """The levels of the state; an earlier version's has none, and those of the sketches stand for them."""
    for name, packed in state.levels.items():
        cells.levels.columns[name] = unpack(packed)
    if not state.levels:
        for row in np.flatnonzero(cells.mass > 0).tolist():
            cells.levels.begin(row, middle_octave(cells.counts[row]), policy.warm_periods, 0.0, 0.0)
