"""Fit and the three scoring strategies, in the stock scheduler's arithmetic."""

from typing import Any

import numpy as np
import pytest

from scheduler.plugins.noderesourcesfit import NodeResourcesFit, ScoringStrategy, allocation_score
from tests.schedobjects import engine, node, pod, rejected, totals

KINDS = {"noderesourcesfit": NodeResourcesFit}


@pytest.mark.parametrize(
    ("requests", "placed", "expected"),
    [
        pytest.param({"cpu": "4"}, {}, [], id="exactly"),
        pytest.param({"cpu": "4001m"}, {}, ["Insufficient cpu"], id="one-too-many"),
        pytest.param({"cpu": "2"}, {"cpu": "2001m"}, ["Insufficient cpu"], id="beside-another"),
        pytest.param({"cpu": "5", "memory": "9Gi"}, {}, ["Insufficient cpu", "Insufficient memory"], id="both-named"),
        pytest.param({"example.com/x": 1}, {}, ["Insufficient example.com/x"], id="unknown-resource"),
        pytest.param({"kubernetes.io/batch-cpu": 1000}, {}, [], id="batch-fits"),
        pytest.param({"kubernetes.io/batch-cpu": 1001}, {}, ["Insufficient kubernetes.io/batch-cpu"], id="batch-full"),
        pytest.param({}, {"cpu": "4"}, [], id="a-pod-without-requests-fits-a-full-node"),
        pytest.param({"cpu": 0}, {"cpu": "5"}, [], id="zero-asks-for-nothing"),
    ],
)
def test_filter(requests: dict[str, Any], placed: dict[str, Any], expected: list[str]) -> None:
    nodes = [node("a", allocatable={"kubernetes.io/batch-cpu": "1000"})]
    others = [pod("other", placed, nodeName="a")] if placed else []
    made = engine(nodes, others, kinds=KINDS)
    assert rejected(made, pod("p", requests)) == {"a": expected}


def test_the_number_of_pods_is_a_resource() -> None:
    made = engine([node("a", allocatable={"pods": "1"})], [pod("x", nodeName="a")], kinds=KINDS)
    assert rejected(made, pod("p")) == {"a": ["Too many pods"]}


def test_ignored_resources_need_not_fit() -> None:
    made = engine(
        [node("a")],
        kinds=KINDS,
        plugins={"noderesourcesfit": {"ignored_resource_groups": ["example.com"]}},
    )
    assert rejected(made, pod("p", {"example.com/x": 1})) == {"a": []}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        # 4000m/8GiB; pod 1000m/2GiB on the empty node, 3000m/4GiB with the other.
        pytest.param("LeastAllocated", {"empty": 75, "busy": (25 + 50) // 2}, id="least"),
        pytest.param("MostAllocated", {"empty": 25, "busy": (75 + 50) // 2}, id="most"),
    ],
)
def test_score(strategy: str, expected: dict[str, int]) -> None:
    made = engine(
        [node("empty"), node("busy")],
        [pod("other", {"cpu": "2", "memory": "2Gi"}, nodeName="busy")],
        kinds=KINDS,
        plugins={"noderesourcesfit": {"strategy": strategy}},
    )
    assert totals(made, pod("p", {"cpu": "1", "memory": "2Gi"})) == expected


def test_pods_without_requests_count_with_defaults() -> None:
    made = engine([node("a")], kinds=KINDS)
    # (4000-100)*100/4000 = 97 and (8192-200)*100/8192 = 97
    assert totals(made, pod("p")) == {"a": 97}


def test_extended_resources_weigh_only_when_asked_for() -> None:
    nodes = [node("a", allocatable={"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "8Gi"})]
    made = engine(nodes, kinds=KINDS)
    assert totals(made, pod("plain", {"cpu": "2", "memory": "4Gi"})) == {"a": 50}
    batch = pod("batch", {"kubernetes.io/batch-cpu": 4000, "kubernetes.io/batch-memory": "8Gi"})
    assert totals(made, batch) == {"a": (97 + 97 + 0 + 0) // 4}


SHAPE = (np.array([0, 50, 100]), np.array([100, 20, 60]))


@pytest.mark.parametrize(
    ("taken", "expected"),
    [(0, 100), (10, 84), (50, 20), (75, 40), (100, 60), (130, 60)],
    ids=["empty", "falling", "knee", "rising", "full", "over"],
)
def test_requested_to_capacity_ratio_is_piecewise_linear(taken: int, expected: int) -> None:
    score = allocation_score(
        ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO,
        SHAPE,
        np.array([[taken]]),
        np.array([[100]]),
        np.array([1]),
    )
    assert score.tolist() == [expected]


def test_a_resource_that_the_node_lacks_has_no_weight() -> None:
    score = allocation_score(
        ScoringStrategy.LEAST_ALLOCATED, SHAPE, np.array([[10, 5]]), np.array([[100, 0]]), np.array([1, 3])
    )
    assert score.tolist() == [90]
