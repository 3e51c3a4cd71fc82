"""Replicas and targets from forecasts: the busiest hour fits, sensitivity lowers the target, nothing is invented."""

import math

import numpy as np
import pytest

from controllers.recommend.replicas import Demand, ReplicaSettings, advice, why

BOUNDS = np.array([2.0] * 8 + [12.0] * 8 + [4.0] * 8)


def test_least_and_most_follow_the_lowest_and_highest_hour() -> None:
    own = advice(BOUNDS, 3.0, Demand(request_cores=1.0, replicas=3))
    assert own is not None
    assert own.target_cpu_utilization_percent == 75, "9 of 12 cores are expected, the rest is the forecast's error"
    assert own.min_replicas == 3, "2 cores at 0.75 a replica"
    assert own.max_replicas == 24, "12 cores and half as much again"


def test_a_sensitive_workload_gets_a_lower_target_and_more_replicas() -> None:
    calm, sensitive = (advice(BOUNDS, 3.0, Demand(request_cores=1.0, replicas=3, sensitivity=s)) for s in (0.0, 0.4))
    assert calm is not None
    assert sensitive is not None
    assert sensitive.target_cpu_utilization_percent == 60, "a fifth is lost where neighbours use half of the node"
    assert sensitive.max_replicas == 30
    assert sensitive.harm == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("sensitivity", "spread", "target"), [(-3.0, 0.0, 90), (100.0, 0.0, 50), (0.0, 100.0, 20), (0.0, -5.0, 90)]
)
def test_targets_are_bounded(sensitivity: float, spread: float, target: int) -> None:
    own = advice(BOUNDS, spread, Demand(request_cores=1.0, replicas=1, sensitivity=sensitivity))
    assert own is not None
    assert own.target_cpu_utilization_percent == target


def test_one_replica_stays_one_and_several_keep_two() -> None:
    idle = np.full(24, 0.01)
    one, two = (advice(idle, 0.0, Demand(request_cores=1.0, replicas=each)) for each in (1, 5))
    assert one is not None
    assert two is not None
    assert (one.min_replicas, one.max_replicas) == (1, 2)
    assert (two.min_replicas, two.max_replicas) == (2, 3)


@pytest.mark.parametrize(
    ("bounds", "spread", "request_cores"),
    [
        pytest.param(BOUNDS[:23], 1.0, 1.0, id="short"),
        pytest.param(np.append(BOUNDS[:23], np.nan), 1.0, 1.0, id="gap"),
        pytest.param(BOUNDS, math.nan, 1.0, id="no spread"),
        pytest.param(BOUNDS, 1.0, 0.0, id="no request"),
        pytest.param(BOUNDS, 1.0, math.nan, id="odd request"),
    ],
)
def test_nothing_is_said_without_a_day_of_forecasts_or_a_request(
    bounds: np.ndarray, spread: float, request_cores: float
) -> None:
    assert advice(bounds, spread, Demand(request_cores=request_cores, replicas=1)) is None


def test_why_names_inputs_and_formula() -> None:
    demand = Demand(request_cores=0.5, replicas=4, sensitivity=0.4)
    own = advice(BOUNDS, 3.0, demand, ReplicaSettings(margin_ratio=2.0))
    assert own is not None
    text = "\n".join(why(own, demand, ReplicaSettings(margin_ratio=2.0)))
    assert "target 60 %" in text
    assert "less 20 % that neighbours cost" in text
    assert "12 cores, the highest hour of the coming week, x 2" in text
