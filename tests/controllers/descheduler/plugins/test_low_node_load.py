"""LowNodeLoad: who moves, in which order, how far, and when nothing does."""

from typing import Any

from controllers.descheduler.cluster_view import Cluster
from controllers.descheduler.plugins.low_node_load import LowNodeLoad
from tests.descheduling import a_cluster, a_node, a_plugin, a_pod, a_report, a_workload, moved, ran

ONCE = {"consecutiveAbnormalities": 1}
LEVELS: dict[str, Any] = {
    "highThresholds": {"cpu": 75, "memory": 80},
    "lowThresholds": {"cpu": 45, "memory": 55},
    "anomalyCondition": ONCE,
}


def cluster(used: dict[str, float], low: float = 1, **more: Any) -> Cluster:
    pods = [a_pod(name, "a", cpu="100m", priority=9500, **more) for name in used]
    reports = [a_report("a", used), a_report("b", {}, system=low)]
    return a_cluster([a_node("a"), a_node("b")], pods, reports=reports, workloads=[a_workload(replicas=50)])


def test_pods_move_until_the_node_is_below_its_level() -> None:
    session = ran(a_plugin(LowNodeLoad, **LEVELS), cluster({"p1": 3, "p2": 3, "p3": 3}))
    assert len(moved(session)) == 1
    assert session.wanted[0].reason.startswith("the node uses cpu 90 % > 75 %")
    assert session.wanted[0].avoid == ("a",)


def test_the_pod_that_covers_the_excess_best_goes_first() -> None:
    assert moved(ran(a_plugin(LowNodeLoad, **LEVELS), cluster({"small": 1, "fits": 2, "large": 6.4}))) == ["fits"]


def test_a_pod_that_would_overload_every_other_node_stays() -> None:
    session = ran(a_plugin(LowNodeLoad, **LEVELS), cluster({"large": 9}, low=4))
    assert not moved(session)


def test_nothing_moves_without_a_low_node_or_when_too_few_are() -> None:
    assert not moved(ran(a_plugin(LowNodeLoad, **LEVELS), cluster({"p": 3, "q": 6}, low=5)))
    assert not moved(ran(a_plugin(LowNodeLoad, **LEVELS, numberOfNodes=1), cluster({"p": 3, "q": 6})))


def test_nothing_moves_before_the_load_lasted() -> None:
    plugin = a_plugin(LowNodeLoad, **{**LEVELS, "anomalyCondition": {"consecutiveAbnormalities": 2}})
    given = cluster({"p": 3, "q": 3, "r": 3})
    assert [len(moved(ran(plugin, given))) for _ in range(3)] == [0, 0, 1]


def test_prod_pods_move_when_they_alone_use_too_much() -> None:
    levels = {**LEVELS, "prodHighThresholds": {"cpu": 40}, "prodLowThresholds": {"cpu": 20}}
    session = ran(a_plugin(LowNodeLoad, **levels), cluster({"p": 3, "q": 3}))
    assert len(moved(session)) == 1
    assert session.wanted[0].reason.startswith("prod pods use cpu 60 % > 40 %")


def test_pools_have_thresholds_of_their_own_and_deviations() -> None:
    pool = {
        "name": "gold",
        "nodeSelector": {"matchLabels": {"pool": "gold"}},
        "useDeviationThresholds": True,
        "highThresholds": {"cpu": 10},
        "lowThresholds": {"cpu": 10},
        "anomalyCondition": ONCE,
    }
    given = cluster({"p": 3, "q": 1})
    assert not moved(ran(a_plugin(LowNodeLoad, nodePools=[pool]), given)), "no node has the label"
    session = ran(a_plugin(LowNodeLoad, nodePools=[{**pool, "nodeSelector": None}]), given)
    assert moved(session)


def test_a_stale_report_says_nothing() -> None:
    assert not moved(ran(a_plugin(LowNodeLoad, **LEVELS), cluster({"p": 3, "q": 6}), now=1_800_000_181.0))
