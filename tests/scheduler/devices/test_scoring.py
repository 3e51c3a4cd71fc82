"""Scores over rows: usage both ways, best fit, and ranks that keep the best apart."""

import numpy as np
import pytest

from api.protocol import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from scheduler.devices.candidates import DeviceStrategy
from scheduler.devices.columns import DeviceColumns
from scheduler.devices.fragmentation import GpuState, TaskType, WorkloadDistribution
from scheduler.devices.inventory import Grant, NodeDevice, NodeDevices
from scheduler.devices.mix import WorkloadMix
from scheduler.devices.request import DeviceKind, device_demands
from scheduler.devices.scoring import NO_ROOM, gradient_scores, ranked, remainder_scores, usage_scores

GI = 1 << 30
TOTAL = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: 10 * GI}
LEAST, MOST = DeviceStrategy


@pytest.mark.parametrize(
    ("strategy", "weights", "expected"),
    [
        pytest.param(LEAST, {GPU_MEMORY_RATIO: 1}, [50, 75], id="least-by-ratio"),
        pytest.param(MOST, {GPU_MEMORY_RATIO: 1}, [50, 25], id="most-by-ratio"),
        pytest.param(LEAST, {GPU_MEMORY_RATIO: 1, GPU_MEMORY: 2}, [150, 225], id="least-weighted"),
    ],
)
def test_usage(strategy: DeviceStrategy, weights: dict[str, int], expected: list[int]) -> None:
    columns = DeviceColumns()
    for row, used in enumerate((50, 0)):
        node = NodeDevices(NodeDevice(DeviceKind.GPU, minor, TOTAL) for minor in range(2))
        node.hold("x", [Grant(DeviceKind.GPU, 0, {GPU_MEMORY_RATIO: used, GPU_MEMORY: used * GI // 10})])
        columns.set_row(row, node)
    demand = device_demands({GPU: 50})[DeviceKind.GPU]
    assert usage_scores(columns, demand, weights, strategy, slice(0, 2)).tolist() == expected


def state(*nodes: tuple[int, tuple[int, int]]) -> GpuState:
    return GpuState(np.array([n[0] for n in nodes]), np.array([n[1] for n in nodes]), np.zeros(len(nodes), dtype=int))


def test_best_fit_prefers_the_smallest_remainder() -> None:
    nodes = state((64000, (100, 100)), (8000, (100, 0)), (8000, (60, 0)))
    assert remainder_scores(nodes, TaskType(4000, 1, 50, 1.0)).argmax() == 2


def test_gradient_marks_rows_without_room_and_breaks_ties_by_snugness() -> None:
    workload = WorkloadDistribution([TaskType(1000, 1, 50, 1.0)])
    nodes = state((64000, (100, 100)), (64000, (100, 0)), (64000, (40, 0)))
    scores, gpu = gradient_scores(workload, nodes, TaskType(1000, 1, 50, 1.0))
    assert scores[2] == NO_ROOM
    assert scores[1] > scores[0]
    assert gpu.tolist() == [0, 0, -1]


def test_only_the_best_rank_100() -> None:
    feasible = np.array([True, True, True, True, False])
    ranks = ranked(np.array([1000, 999, 1000, 0, 5000]), feasible)
    assert ranks[:4].tolist() == [100, 98, 100, 0]
    assert ranked(np.array([7, 7]), np.array([True, True])).tolist() == [100, 100]
    assert ranked(np.array([7]), np.array([False])).tolist() == [0]


def test_mix_learns_when_a_quarter_more_pods_came() -> None:
    mix = WorkloadMix([])
    assert mix.learns
    assert not mix.refresh()
    for _ in range(4):
        mix.see(TaskType(1000, 1, 50, 1.0))
    assert mix.refresh()
    nodes = state((8000, (40, 100)))
    assert mix.workload.fragmentation(nodes).tolist() == [40]
    mix.see(TaskType(1000, 1, 50, 1.0))
    assert not mix.refresh()
    mix.see(TaskType(1000, 1, 50, 1.0))
    assert mix.refresh()


def test_mix_compiles_models_as_they_appear() -> None:
    mix = WorkloadMix([TaskType(1000, 1, 50, 1.0, frozenset({"A"}))])
    a, b = mix.model("A"), mix.model("B")
    nodes = GpuState(np.array([8000, 8000]), np.array([[100], [100]]), np.array([a, b]))
    assert mix.workload.fragmentation(nodes).tolist() == [0, 100]
    assert not mix.learns
