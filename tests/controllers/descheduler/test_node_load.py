"""Thresholds, classes of nodes and rounds of anomalies, as Koordinator counts them."""

import pytest

from controllers.descheduler.node_load import (
    AnomalyDetector,
    Group,
    Levels,
    Load,
    group_of,
    level,
    load_of,
    thresholds,
    usage_score,
)
from tests.descheduling import NOW, a_cluster, a_node, a_pod, a_report


def load(cpu: int, prod: int = 0, *, cordoned: bool = False) -> Load:
    node = a_node("a", spec={"unschedulable": cordoned})
    return Load(node, {"cpu": 1000}, {"cpu": cpu}, {"cpu": prod}, {})


LEVELS = Levels({"cpu": 450}, {"cpu": 750}, {"cpu": 100}, {"cpu": 300})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(load(450, 200), Group.LOW, id="low-is-not-strict"),
        pytest.param(load(450, 100), Group.BOTH_LOW, id="both-low"),
        pytest.param(load(450, 301), Group.PROD_HIGH, id="low-with-high-prod"),
        pytest.param(load(750, 200), Group.NORMAL, id="high-is-strict"),
        pytest.param(load(751, 100), Group.HIGH, id="high"),
        pytest.param(load(600, 301), Group.PROD_HIGH, id="prod-high"),
        pytest.param(load(600, 100), Group.PROD_LOW, id="prod-low"),
        pytest.param(load(100, 200, cordoned=True), Group.NORMAL, id="cordoned-is-never-low"),
    ],
)
def test_classes(given: Load, expected: Group) -> None:
    assert group_of(given, LEVELS) is expected


def test_fixed_thresholds_are_percents_of_capacity_cut_to_whole_numbers() -> None:
    assert level({"cpu": 25.25, "memory": 100.0}, {"cpu": 1000, "memory": 7}) == {"cpu": 252, "memory": 7}


def test_thresholds_by_deviation_lie_around_the_mean() -> None:
    loads = [load(200), load(600)]
    assert thresholds({"cpu": 10}, {"cpu": 20}, loads, deviation=True) == (
        {"cpu": 30.0, "memory": 100.0},
        {"cpu": 60.0, "memory": 100.0},
    )
    assert thresholds({"cpu": 90}, {"cpu": 90}, loads, deviation=True)[0]["cpu"] == 0.0
    assert thresholds({"cpu": 0}, {"cpu": 20}, loads, deviation=True)[1]["cpu"] == 100.0


def test_a_resource_without_a_low_threshold_never_counts() -> None:
    assert thresholds({}, {"cpu": 50}, [], deviation=False) == (
        {"cpu": 100.0, "memory": 100.0},
        {"cpu": 100.0, "memory": 100.0},
    )


def test_usage_is_of_the_system_and_the_pods() -> None:
    pods = [a_pod("p", priority=9500), a_pod("q", priority=5500)]
    cluster = a_cluster([a_node("a")], pods, reports=[a_report("a", {"p": 2, "q": 3}, system=1)])
    found = load_of(cluster, a_node("a"), NOW, 180.0)
    assert found is not None
    assert (found.used["cpu"], found.used["pods"]) == (6000, 2)
    assert found.prod_used["cpu"] == 2000
    assert load_of(cluster, a_node("a"), NOW + 181, 180.0) is None
    assert load_of(cluster, a_node("b"), NOW, 180.0) is None


def test_the_score_is_the_weighted_mean_in_thousandths() -> None:
    it = Load(a_node("a"), {"cpu": 1000, "memory": 100}, {"cpu": 500, "memory": 400}, {}, {})
    assert usage_score(it, it.used, {"cpu": 1, "memory": 1}) == 750.0
    assert usage_score(it, it.used, {"cpu": 3, "memory": 1}) == 625.0
    assert usage_score(it, it.used, {}) == 0.0


def test_a_node_is_anomalous_after_more_rounds_than_stated() -> None:
    it = AnomalyDetector(60.0, 5, 3)
    assert [it.mark(abnormal=True, now=10.0 * step) for step in range(6)] == [False] * 5 + [True]
    assert it.mark(abnormal=False, now=60.0)
    it.reset()
    assert not it.anomalous


def test_an_anomaly_lapses_and_a_sound_round_starts_the_count_anew() -> None:
    it = AnomalyDetector(60.0, 2, 3)
    for step in range(3):
        it.mark(abnormal=True, now=float(step))
    assert it.anomalous
    assert not it.mark(abnormal=True, now=63.0)
    interrupted = AnomalyDetector(60.0, 2, 3)
    for abnormal in (True, True, False, True, True):
        interrupted.mark(abnormal=abnormal, now=0.0)
    assert not interrupted.anomalous


def test_one_round_is_enough_where_that_is_stated() -> None:
    assert AnomalyDetector(60.0, 1, 3).mark(abnormal=True, now=0.0)
