"""Ranks for scaling down: Koordinator's order, as deletion costs or as moves."""

from typing import Any

import msgspec
import pytest

from controllers.descheduler.plugin import Session
from controllers.descheduler.plugins.scale_down_bin_pack import ScaleDownBinPack, ScaleDownBinPackArgs
from tests.descheduling import a_cluster, a_node, a_plugin, a_pod, a_workload, moved, ran

NODES = [a_node("a"), a_node("b"), a_node("c")]
TARGET = [{"name": "web", "selector": {"matchLabels": {"app": "web"}}}]
WEB = {"labels": {"app": "web"}}
PODS = [
    # a: 4 of others beside 2 of the target; b: nothing beside 3; c: nothing beside 1 and 1.
    a_pod("other", "a", cpu=4, memory="1G", owner="db"),
    a_pod("a1", "a", cpu=2, **WEB),
    a_pod("b1", "b", cpu=3, **WEB),
    a_pod("c1", "c", cpu=1, age_seconds=100, **WEB),
    a_pod("c2", "c", cpu=1, age_seconds=50, **WEB),
]


def session(pods: Any = PODS, **args: Any) -> Session:
    cluster = a_cluster(NODES, pods, workloads=[a_workload(replicas=50), a_workload("db", replicas=50)])
    return ran(a_plugin(ScaleDownBinPack, podSelectors=TARGET, **args), cluster)


def costs(found: Session) -> dict[str, str]:
    return {each.pod.metadata.name: each.text for each in found.annotated}


def test_nodes_that_others_use_least_come_first_then_the_newest_pods() -> None:
    found = session()
    assert costs(found) == {"b1": "0", "c2": "1", "c1": "2", "a1": "3"}
    assert not found.wanted


def test_a_pod_that_may_not_be_moved_is_last_and_counts_as_staying() -> None:
    stays = a_pod("b2", "b", cpu=1, owner="", **WEB)
    assert costs(session([*PODS, stays])) == {"c2": "0", "c1": "1", "b1": "2", "a1": "3", "b2": str(2**31 - 1)}


def test_what_is_stated_already_is_not_written_again() -> None:
    pods = [each for each in PODS if each.metadata.name != "b1"]
    stated = {"controller.kubernetes.io/pod-deletion-cost": "0"}
    assert "b1" not in costs(session([*pods, a_pod("b1", "b", cpu=3, annotations=stated, **WEB)]))
    assert not costs(session(dryRun=True))


def test_weights_turn_the_order() -> None:
    pods = [
        a_pod("x", "a", cpu=1, memory="1G", owner="db"),
        a_pod("a1", "a", cpu=1, memory="50G", **WEB),
        a_pod("y", "b", cpu=1, memory="40G", owner="db"),
        a_pod("b1", "b", cpu=4, memory="50G", **WEB),
    ]
    assert costs(session(pods)) == {"a1": "0", "b1": "1"}
    assert costs(session(pods, resourceWeights={"cpu": 100})) == {"b1": "0", "a1": "1"}


def test_so_many_are_moved_and_not_to_the_nodes_that_are_emptied() -> None:
    found = session(strategy="EvictDirectly", maxPodsToEvict=3)
    assert moved(found) == ["b1", "c2", "c1"]
    assert [each.avoid for each in found.wanted] == [("b",), ("b", "c"), ("b", "c")]
    assert not found.annotated


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        pytest.param({"strategy": "EvictDirectly"}, "maxPodsToEvict", id="how-many"),
        pytest.param({"resourceWeights": {"cpu": 0}}, "> 0", id="weight"),
        pytest.param({"strategy": "Some"}, "strategy", id="strategy"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: Any, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert(args, ScaleDownBinPackArgs)
