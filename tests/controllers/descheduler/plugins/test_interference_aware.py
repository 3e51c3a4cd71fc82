"""Verdicts of nodes: the culprit moves, the victim where it cannot, one at a time, and only when it lasts."""

from typing import Any

import pytest

from api.kube.times import rfc3339
from controllers.descheduler.cluster_view import Cluster
from controllers.descheduler.plugins.interference_aware import InterferenceAware
from tests.descheduling import NOW, a_cluster, a_node, a_plugin, a_pod, a_report, a_workload, moved, ran

AT_ONCE = {"lastingSeconds": 0}


def verdict(lost: float = 0.3, until: float = NOW + 90, **more: Any) -> dict[str, Any]:
    stated = {
        "resource": "cache",
        "culprits": ["ReplicaSet/shop/hog"],
        "lostSecondsPerSecond": lost,
        "until": rfc3339(until),
        **more,
    }
    return {"interference": {"verdicts": [stated]}}


def cluster(extension: dict[str, Any], **hog: Any) -> Cluster:
    pods = [a_pod("victim"), a_pod("hog", owner="hog", **hog), a_pod("other", owner="third")]
    report = a_report("a", {"victim": 1, "hog": 4, "other": 1}, extensions={"victim": extension})
    workloads = [a_workload(name, 5) for name in ("web", "hog", "third")]
    return a_cluster([a_node("a"), a_node("b")], pods, reports=[report], workloads=workloads)


def test_the_culprit_goes() -> None:
    session = ran(a_plugin(InterferenceAware, **AT_ONCE), cluster(verdict()))
    assert moved(session) == ["hog"]
    assert session.wanted[0].reason == "shop/victim loses 0.30 s/s of cache to it"


def test_where_the_culprit_cannot_go_the_victim_does() -> None:
    given = cluster(verdict(), kind="DaemonSet")
    daemon = {"culprits": ["DaemonSet/shop/hog"]}
    given = cluster(verdict(**daemon), kind="DaemonSet")
    assert moved(ran(a_plugin(InterferenceAware, **AT_ONCE), given)) == ["victim"]
    assert not moved(ran(a_plugin(InterferenceAware, **AT_ONCE, moveVictims=False), given))


@pytest.mark.parametrize(
    "extension",
    [
        pytest.param(verdict(lost=0.01), id="little"),
        pytest.param(verdict(until=NOW - 1), id="over"),
        pytest.param(verdict(until=NOW + 10_000), id="clock-ahead"),
        pytest.param(verdict(culprits=[]), id="no-culprit"),
        pytest.param({"interference": {"verdicts": [{"resource": 1}]}}, id="malformed"),
        pytest.param({"interference": "x"}, id="no-object"),
    ],
)
def test_verdicts_that_move_nothing(extension: dict[str, Any]) -> None:
    assert not moved(ran(a_plugin(InterferenceAware, **AT_ONCE), cluster(extension)))


def test_the_nodes_own_means_come_first() -> None:
    plugin = a_plugin(InterferenceAware)
    assert not moved(ran(plugin, cluster(verdict())))
    assert not moved(ran(plugin, cluster(verdict(until=NOW + 150)), now=NOW + 60))
    assert not moved(ran(plugin, cluster(verdict(until=NOW + 150)), now=NOW + 119))
    assert moved(ran(plugin, cluster(verdict(until=NOW + 150)), now=NOW + 120)) == ["hog"]


def test_verdicts_with_a_gap_between_them_do_not_last() -> None:
    plugin = a_plugin(InterferenceAware)
    assert not moved(ran(plugin, cluster(verdict(until=NOW + 30))))
    assert not moved(ran(plugin, cluster(verdict(until=NOW + 150)), now=NOW + 121))
    assert not moved(ran(plugin, cluster({}), now=NOW + 125))
    assert not moved(ran(plugin, cluster(verdict(until=NOW + 400)), now=NOW + 242))
    assert moved(ran(plugin, cluster(verdict(until=NOW + 400)), now=NOW + 362)) == ["hog"]
