"""Scores of nodes for a device demand: emptiest, fullest, or least fragmented by it."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from api.protocol import GPU_MEMORY, GPU_MEMORY_RATIO
from scheduler.cluster_state.columns import Rows
from scheduler.devices.candidates import DeviceStrategy
from scheduler.devices.columns import DeviceColumns
from scheduler.devices.fragmentation import WHOLE_PERCENT, GpuState, TaskType, WorkloadDistribution, gradient
from scheduler.devices.lookahead import Filling
from scheduler.devices.request import DeviceDemand

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NO_ROOM = -(1 << 40)
"""Score of a row that the gradient cannot serve; below any real one."""

STEPS_PER_PERCENT = 1000
"""Steps into which the score divides one percent of a GPU of fragmentation."""

SNUG_PERCENT = 4.0
"""Penalty of a wholly empty eight-GPU node against a full one, in percent of a GPU.

Among nodes that a pod fragments alike the fuller one is better; the measure itself is blind to that. The gain on
the 2023 trace is flat between 1 and 16.
"""


def usage_scores(
    columns: DeviceColumns,
    demand: DeviceDemand,
    weights: Mapping[str, int],
    strategy: DeviceStrategy,
    rows: Rows,
) -> Ints:
    """Weighted sum over the scoring resources of (total - used - request) * 100 / total, or of the used part."""
    scores: Ints = np.zeros_like(columns.known[rows], dtype=np.int64)
    for name, weight in weights.items():
        total = columns.total(demand.kind, name, rows).sum(axis=1)
        request = _requested(columns, demand, name, rows)
        if request is None:
            continue
        left = columns.free(demand.kind, name, rows).sum(axis=1) - request
        part = left if strategy is DeviceStrategy.LEAST_ALLOCATED else total - left
        share = np.clip(part, 0, None) * 100 // np.maximum(total, 1)
        scores += np.where((total > 0) & (left >= 0), share, 0) * weight
    return scores


def _requested(columns: DeviceColumns, demand: DeviceDemand, name: str, rows: Rows) -> Ints | int | None:
    """The demand in one resource; GPU memory is converted between bytes and percent by the node's cards."""
    if name in demand.each:
        return demand.each[name] * demand.count
    if name == GPU_MEMORY and GPU_MEMORY_RATIO in demand.each:
        card = columns.total(demand.kind, GPU_MEMORY, rows).max(axis=1, initial=0)
        return np.asarray(demand.each[GPU_MEMORY_RATIO] * demand.count * card // WHOLE_PERCENT)
    if name == GPU_MEMORY_RATIO and GPU_MEMORY in demand.each:
        card = columns.total(demand.kind, GPU_MEMORY, rows).max(axis=1, initial=0)
        return np.asarray(demand.each[GPU_MEMORY] * demand.count * WHOLE_PERCENT // np.maximum(card, 1))
    return None


def gradient_scores(workload: WorkloadDistribution, state: GpuState, task: TaskType) -> tuple[Ints, Ints]:
    """Fixed-point score per row (higher fragments less) and the GPU position to share there, -1 for none."""
    result = gradient(workload, state, task)
    cost = result.growth + SNUG_PERCENT * emptiness(state)
    scores = np.full(len(cost), NO_ROOM, dtype=np.int64)
    fits = np.isfinite(cost)
    scores[fits] = np.round(-cost[fits] * STEPS_PER_PERCENT).astype(np.int64)
    return scores, result.gpu


def look_ahead(
    filling: Filling, state: GpuState, task: TaskType, scores: Ints, feasible: npt.NDArray[np.bool_], count: int
) -> Ints:
    """`scores` of the gradient with the best `count` of them put above all others, by what filling them up leaves.

    Of nodes with one score one is looked at: they are alike.
    """
    rows = np.flatnonzero(feasible & (scores > NO_ROOM))
    if rows.size == 0:
        return scores
    _, first = np.unique(-scores[rows], return_index=True)
    chosen = rows[first[:count]]
    few = GpuState(state.cpu_millicores[chosen], state.gpu_percent[chosen], state.model[chosen])
    cost = filling.gradient(few, task).growth + SNUG_PERCENT * emptiness(few)
    chosen, cost = chosen[np.isfinite(cost)], cost[np.isfinite(cost)]
    ahead = scores.copy()
    if chosen.size:
        ahead[chosen] = scores[rows].max() + np.round((cost.max() - cost) * STEPS_PER_PERCENT).astype(np.int64)
    return ahead


LARGE_NODE = (128_000, 8 * WHOLE_PERCENT)
"""Millicores and GPU percent that a large node has; what is left over is measured against it."""


def emptiness(state: GpuState) -> Floats:
    """Mean of free cpu and free GPU, each as a share of a large node's."""
    cpu, gpu = LARGE_NODE
    return np.asarray((state.cpu_millicores / cpu + state.gpu_percent.sum(axis=1) / gpu) / 2)


def remainder_scores(state: GpuState, task: TaskType) -> Ints:
    """Best fit: fixed-point score per row, higher where less cpu and GPU is left over."""
    asked = task.cpu_millicores / LARGE_NODE[0] + task.gpus * task.gpu_percent / LARGE_NODE[1]
    return np.round((asked / 2 - emptiness(state)) * WHOLE_PERCENT * STEPS_PER_PERCENT).astype(np.int64)


def ranked(scores: Ints, feasible: npt.NDArray[np.bool_]) -> Ints:
    """Scores brought to 0..100 so that only the very best have 100; the rest keep their distance below 99."""
    chosen = scores[feasible & (scores > NO_ROOM)]
    if chosen.size == 0:
        return np.zeros_like(scores)
    best, worst = int(chosen.max()), int(chosen.min())
    share = (np.clip(scores, worst, best) - worst) * 99 // max(1, best - worst)
    return np.where(scores >= best, 100, np.minimum(share, 99))
