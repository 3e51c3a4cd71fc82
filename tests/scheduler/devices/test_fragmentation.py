"""Fragmentation: hand-worked nodes, and the vectorised gradient against trying every GPU of every node."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.devices.fragmentation import GpuState, TaskType, WorkloadDistribution, gradient

SHARE, WHOLE, PAIR, CPU_ONLY = (
    TaskType(4000, 1, 50, 0.5),
    TaskType(8000, 1, 100, 0.25),
    TaskType(16000, 2, 100, 0.15),
    TaskType(4000, 0, 0, 0.1),
)
MIX = (SHARE, WHOLE, PAIR, CPU_ONLY)


def state(*nodes: tuple[int, tuple[int, ...]]) -> GpuState:
    cpu = np.array([cpu for cpu, _ in nodes])
    percent = np.array([list(free) + [0] * (4 - len(free)) for _, free in nodes])
    return GpuState(cpu, percent, np.zeros(len(nodes), dtype=np.int64))


@pytest.mark.parametrize(
    ("kind", "node", "fragmented"),
    [
        pytest.param(SHARE, (8000, (100, 100)), 0, id="share-of-free-cards"),
        pytest.param(SHARE, (8000, (40, 100)), 40, id="share-of-a-part"),
        pytest.param(SHARE, (2000, (100, 100)), 200, id="share-without-cpus"),
        pytest.param(WHOLE, (8000, (40, 60)), 100, id="whole-of-parts"),
        pytest.param(PAIR, (16000, (100, 30)), 130, id="pair-one-free"),
        pytest.param(PAIR, (16000, (100, 100, 30)), 30, id="pair-two-free"),
        pytest.param(CPU_ONLY, (8000, (100,)), 100, id="cpu-only"),
    ],
)
def test_one_task_on_one_node(kind: TaskType, node: tuple[int, tuple[int, ...]], fragmented: float) -> None:
    assert WorkloadDistribution([kind]).fragmentation(state(node)) == pytest.approx([fragmented])


def test_mix_is_the_weighted_mean() -> None:
    node = state((8000, (40, 100)))
    expected = 0.5 * 40 + 0.25 * 40 + 0.15 * 140 + 0.1 * 140
    assert WorkloadDistribution(MIX).fragmentation(node) == pytest.approx([expected])


def test_model_that_does_not_serve_is_fragment() -> None:
    picky = TaskType(1000, 1, 50, 1.0, frozenset({"A10"}))
    nodes = GpuState(np.array([8000, 8000]), np.array([[100], [100]]), np.array([0, 1]))
    assert WorkloadDistribution([picky], ["A10", "T4"]).fragmentation(nodes) == pytest.approx([0, 100])


def test_share_goes_where_it_fills_a_remainder() -> None:
    result = gradient(WorkloadDistribution(MIX), state((32000, (100, 100)), (32000, (50, 100))), SHARE)
    assert result.growth.argmin() == 1
    assert result.gpu[1] == 0


def test_node_without_room_is_infinite() -> None:
    result = gradient(WorkloadDistribution(MIX), state((2000, (100,)), (32000, (40,))), SHARE)
    assert np.isinf(result.growth).all()
    assert result.gpu.tolist() == [-1, -1]


cluster = st.lists(st.tuples(st.integers(0, 20000), st.tuples(*[st.integers(0, 100)] * 4)), min_size=1, max_size=5)


@given(cluster, st.sampled_from([*MIX, TaskType(1000, 3, 100, 1), TaskType(1000, 1, 7, 1)]))
def test_gradient_equals_trying_every_choice(nodes: list[tuple[int, tuple[int, ...]]], task: TaskType) -> None:
    workload = WorkloadDistribution(MIX)
    result = gradient(workload, state(*nodes), task)
    before = workload.fragmentation(state(*nodes))
    for row, (cpu, free) in enumerate(nodes):
        outcomes = []
        if task.gpus == 1:
            for gpu in range(4):
                if free[gpu] >= task.gpu_percent:
                    left = tuple(f - task.gpu_percent * (g == gpu) for g, f in enumerate(free))
                    outcomes.append(left)
        elif sum(f >= task.gpu_percent for f in free) >= task.gpus:
            taken = sorted(range(4), key=lambda g: -free[g])[: task.gpus]
            outcomes.append(tuple(f - task.gpu_percent * (g in taken) for g, f in enumerate(free)))
        if cpu < task.cpu_millicores or not outcomes:
            assert np.isinf(result.growth[row])
            continue
        after = min(workload.fragmentation(state((cpu - task.cpu_millicores, left)))[0] for left in outcomes)
        assert result.growth[row] == pytest.approx(after - before[row])
