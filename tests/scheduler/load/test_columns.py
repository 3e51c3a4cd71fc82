"""Load scores and limits: published vectors, and agreement with the plain formula on any numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.load.columns import UNLIMITED, load_scores, usage_limits

GIB = 1 << 30
NODE = [[96_000], [512 * GIB]]
ESTIMATE = np.array([[13_600], [24_051_816_858]])
IDLE = np.zeros((2, 1), dtype=np.int64)
LOADED = np.array([[32_000], [10 * GIB]])


def array(rows: list[list[int]]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


@pytest.mark.parametrize(
    ("usage", "dominant", "expected"),
    [
        pytest.param(IDLE, 0, 90, id="idle"),
        pytest.param(LOADED, 0, 72, id="loaded"),
        pytest.param(LOADED, 1, 65, id="the dominant resource weighs again"),
    ],
)
def test_scores_of_a_big_pod(usage: np.ndarray, dominant: int, expected: int) -> None:
    score = load_scores(array(NODE), usage + ESTIMATE, weights=[1, 1], dominant_weight=dominant)
    assert score.tolist() == [expected]


def test_an_absent_or_overused_resource_has_nothing_free() -> None:
    allocatable, used = array([[1000, 1000, 0], [100, 100, 100]]), array([[0, 1001, 0], [0, 0, 0]])
    assert load_scores(allocatable, used, weights=[1, 1], dominant_weight=0).tolist() == [100, 50, 50]
    assert load_scores(allocatable, used, weights=[1, 1], dominant_weight=2).tolist() == [100, 25, 25]


def test_without_weights_nothing_is_preferred() -> None:
    assert load_scores(array(NODE), IDLE, weights=[0, 0], dominant_weight=0).tolist() == [0]


@given(
    allocatable=st.integers(0, 1 << 46), threshold=st.integers(0, 100), around=st.integers(-3, 3), part=st.floats(0, 2)
)
def test_the_limit_is_where_the_rounded_percentage_exceeds(
    allocatable: int, threshold: int, around: int, part: float
) -> None:
    limit = int(usage_limits(array([[allocatable]]), array([[threshold]]))[0, 0])
    if allocatable == 0 or threshold == 0:
        assert limit == UNLIMITED
        return
    for used in (limit + around, int(allocatable * part)):
        percent = (200 * used + allocatable) // (2 * allocatable)
        assert (used <= limit) == (percent <= threshold)


@given(
    nodes=st.lists(
        st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.integers(0, 1 << 44), st.integers(0, 1 << 44)),
        min_size=1,
        max_size=6,
    ),
    weights=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    dominant=st.integers(0, 3),
)
def test_columns_agree_with_the_formula(
    nodes: list[tuple[int, int, int, int]], weights: tuple[int, int], dominant: int
) -> None:
    allocatable, used = (
        array([[n[0] for n in nodes], [n[2] for n in nodes]]),
        array([[n[1] for n in nodes], [n[3] for n in nodes]]),
    )
    scores = load_scores(allocatable, used, weights=weights, dominant_weight=dominant)
    for score, (cpu, cpu_used, memory, memory_used) in zip(scores.tolist(), nodes, strict=True):
        free = [
            0 if total == 0 or taken > total else (total - taken) * 100 // total
            for total, taken in ((cpu, cpu_used), (memory, memory_used))
        ]
        weight = sum(weights) + dominant
        weighed = free[0] * weights[0] + free[1] * weights[1] + min(free) * dominant
        assert score == (weighed // weight if weight else 0)
