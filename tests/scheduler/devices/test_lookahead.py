"""Filling nodes up in thought: against one pod at a time by hand, and what it prefers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.devices import lookahead
from scheduler.devices.fragmentation import GpuState, TaskType
from scheduler.devices.lookahead import Filling
from scheduler.devices.scoring import NO_ROOM, look_ahead

WHOLE, HALF = TaskType(8000, 1, 100, 3.0), TaskType(4000, 1, 50, 2.0)
MIX = [WHOLE, HALF, TaskType(1000, 2, 100, 1.0), TaskType(4000, 0, 0, 9.0)]


def state(*nodes: tuple[int, tuple[int, ...]], model: int = 0) -> GpuState:
    widest = max(len(gpus) for _, gpus in nodes)
    percent = np.array([[*gpus, *[0] * (widest - len(gpus))] for _, gpus in nodes], dtype=np.int64)
    return GpuState(np.array([cpu for cpu, _ in nodes]), percent, np.full(len(nodes), model))


def by_hand(filling: Filling, cpu: int, gpus: tuple[int, ...], model: int = 0) -> float:
    left = []
    for sequence in range(filling._cpu.shape[0]):
        room, free = cpu, sorted(gpus, reverse=True)
        for step in range(filling._cpu.shape[1]):
            asked, count, percent = (
                int(each[sequence, step]) for each in (filling._cpu, filling._gpus, filling._percent)
            )
            serving = [place for place, amount in enumerate(free) if amount >= percent]
            if asked > room or len(serving) < count or not filling._served[model, sequence, step]:
                continue
            room -= asked
            for place in [min(serving, key=lambda place: free[place])] if count == 1 else serving[:count]:
                free[place] -= percent
        left.append(sum(free))
    return sum(left) / len(left)


NODES = st.lists(
    st.tuples(st.integers(-1000, 64_000), st.lists(st.integers(0, 100), min_size=1, max_size=4).map(tuple)),
    min_size=1,
    max_size=5,
)


@given(nodes=NODES)
@settings(max_examples=25, deadline=None)
def test_all_nodes_at_once_equal_one_pod_at_a_time(nodes: list[tuple[int, tuple[int, ...]]]) -> None:
    filling = Filling(MIX)
    made = state(*nodes)
    expected = [by_hand(filling, cpu, gpus) for cpu, gpus in nodes]
    assert filling.unused(made).tolist() == pytest.approx(expected)
    assert filling.unused(made).tolist() == pytest.approx(expected), "as it is remembered"


def test_answers_that_were_forgotten_are_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookahead, "MAX_STATES", 2)
    filling = Filling(MIX)
    first, second = state((8000, (100, 50))), state((8000, (100, 50)), (4000, (100, 100)), (0, (100, 100)))
    (once,) = filling.unused(first)
    assert filling.unused(second).tolist() == [once, pytest.approx(by_hand(filling, 4000, (100, 100))), 200]


def test_a_pod_that_takes_the_cpu_of_gpus_costs_them() -> None:
    filling = Filling([WHOLE])
    ample, tight = (64_000, (100,) * 4), (32_000, (100,) * 4)
    growth = filling.gradient(state(ample, tight), TaskType(16_000, 0, 0, 1.0)).growth
    assert growth.tolist() == [0, 200]
    assert filling.gradient(state(ample, tight), WHOLE).growth.tolist() == [0, 0]
    assert np.isinf(filling.gradient(state((4000, (100,)), (9000, (99,))), WHOLE).growth).all()


def test_a_share_leaves_whole_gpus_to_those_that_ask_for_them() -> None:
    result = Filling([WHOLE]).gradient(state((64_000, (100, 70))), HALF)
    assert result.gpu.tolist() == [1]
    assert result.growth.tolist() == [-50]


def test_pods_of_other_models_fill_nothing() -> None:
    filling = Filling([TaskType(1000, 1, 100, 1.0, frozenset({"a"}))], ["", "a"])
    assert filling.unused(state((9000, (100,)), model=0)).tolist() == [100]
    assert filling.unused(state((9000, (100,)), model=1)).tolist() == [0]


def test_without_a_mix_nothing_grows() -> None:
    growth = Filling([]).gradient(state((9000, (100, 100))), HALF).growth
    assert growth.tolist() == [-50], "what the pod takes is no longer unused"
    assert Filling([TaskType(1, 1, 1, 1.0)]).unused(state((0, (0,)))).tolist() == [0]


def test_the_best_few_come_first_in_their_new_order() -> None:
    filling = Filling([WHOLE])
    nodes = state((32_000, (100,) * 4), (64_000, (100,) * 4), (64_000, (100,) * 4), (0, (100,)))
    scores = np.array([30, 20, 10, NO_ROOM], dtype=np.int64)
    feasible = np.array([True, True, True, False])
    task = TaskType(16_000, 0, 0, 1.0)
    two = look_ahead(filling, nodes, task, scores, feasible, 2)
    assert two[1] > two[0] >= 30
    assert two[2:].tolist() == [10, NO_ROOM]
    assert look_ahead(filling, nodes, task, scores, feasible, 1)[0] >= 30
    assert look_ahead(filling, nodes, task, scores, ~feasible, 2).tolist() == scores.tolist()
