"""Levels of nodes: pods go from dear ones to cheap ones, within thresholds, and whole nodes where that is asked for."""

from typing import Any

import msgspec
import pytest

from api.kube.objects import Node, Pod
from controllers.descheduler import plugin
from controllers.descheduler.configuration import DeschedulerConfiguration
from controllers.descheduler.limits import Limits
from controllers.descheduler.plugins.custom_priority import CustomPriority, CustomPriorityArgs
from controllers.migration.settings import MigrationArgs
from tests.descheduling import NOW, a_cluster, a_node, a_plugin, a_pod, a_workload, moved, ran

WORKLOAD = {"workloads": [a_workload(replicas=50)]}


def level(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "nodeSelector": {"matchLabels": {"price": name}}, **more}


def of(price: str, name: str, **more: Any) -> Any:
    return a_node(name, labels={"price": price}, **more)


NODES = [of("dear", "d1"), of("cheap", "c1", cpu=4)]


def went(pods: Any, *levels: Any, nodes: Any = NODES, **args: Any) -> list[str]:
    order = list(levels) or [level("dear"), level("cheap")]
    return moved(ran(a_plugin(CustomPriority, evictionOrder=order, **args), a_cluster(nodes, pods, **WORKLOAD)))


def test_the_smallest_go_first_while_there_is_room() -> None:
    pods = [a_pod("big", "d1", cpu=3), a_pod("small", "d1", cpu=1), a_pod("middle", "d1", cpu=2)]
    assert went(pods) == ["small", "middle"]
    assert went([a_pod("there", "c1", cpu=4), *pods]) == []
    assert went([a_pod("there", "c1", cpu=1)]) == [], "nothing goes to a dearer level"


def test_a_node_is_drained_as_a_whole_or_not_at_all() -> None:
    nodes = [of("dear", "d1"), of("dear", "d2"), of("cheap", "c1", cpu=4)]
    pods = [a_pod("a", "d1", cpu=3), a_pod("b", "d1", cpu=2), a_pod("c", "d2", cpu=2), a_pod("d", "d2", cpu=2)]
    assert went(pods, nodes=nodes, mode="DrainNode") == ["c", "d"]
    assert went(pods[:2], nodes=nodes, mode="DrainNode") == []


def test_thresholds() -> None:
    pods = [a_pod("a", "d1", cpu=1), a_pod("b", "d1", cpu=1)]
    assert went(pods, level("dear", keepThreshold={"cpu": 21}), level("cheap")) == []
    assert went(pods, level("dear", keepThreshold={"cpu": 20}), level("cheap")) == ["a", "b"]
    assert went(pods, level("dear"), level("cheap", rejectThreshold={"cpu": 25})) == ["a"]


def test_a_moved_pod_does_not_come_back() -> None:
    nodes = [of("dear", "d1"), of("middle", "m1", cpu=1), of("cheap", "c1")]
    levels = [level("dear"), level("middle"), level("cheap")]
    cluster = a_cluster(nodes, [a_pod("a", "d1"), a_pod("b", "m1")], **WORKLOAD)
    wanted = ran(a_plugin(CustomPriority, evictionOrder=levels), cluster).wanted
    assert {each.pod.metadata.name: each.avoid for each in wanted} == {"a": ("d1",), "b": ("d1", "m1")}


@pytest.mark.parametrize("limit", ["maxNoOfPodsToEvictTotal", "maxNoOfPodsToEvictPerMinute"])
def test_the_work_ends_with_the_limit_of_the_cycle(limit: str) -> None:
    nodes = [of("dear", "d1"), of("dear", "d2"), of("cheap", "c1")]
    pods = [a_pod(f"{node}-{number}", node) for node in ("d1", "d2") for number in range(3)]
    cluster, limits = a_cluster(nodes, pods, **WORKLOAD), Limits(msgspec.convert({limit: 1}, DeschedulerConfiguration))
    session = ran(
        a_plugin(CustomPriority, evictionOrder=[level("dear"), level("cheap")]),
        cluster,
        admit=lambda wanted: limits.admit(wanted, cluster, MigrationArgs(), NOW),
    )
    assert moved(session) == ["d1-0"]
    assert [pod.metadata.name for pod, _ in session.refused] == ["d1-1"]


def test_the_search_ends_with_the_first_place(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: set[str] = set()

    def admits(node: Node, _: Pod) -> bool:
        looked_at.add(node.name)
        return True

    monkeypatch.setattr(plugin, "node_admits", admits)
    nodes = [of("cheap", "c1"), of("cheap", "c2"), of("cheap", "c3"), of("dear", "d1")]
    assert went([a_pod("a", "d1")], nodes=nodes) == ["a"]
    assert looked_at == {"c1"}


def test_cordoned_and_unfit_nodes_take_nothing() -> None:
    cordoned = [of("dear", "d1"), of("cheap", "c1", spec={"unschedulable": True})]
    assert went([a_pod("a", "d1")], nodes=cordoned) == []
    picky = a_pod("a", "d1", spec={"nodeSelector": {"price": "dear"}})
    assert went([picky]) == []


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        pytest.param({"evictionOrder": [level("a")]}, "length >= 2", id="one"),
        pytest.param({"evictionOrder": [level("a"), level("a")]}, "one name", id="twice"),
        pytest.param({"evictionOrder": [{"name": "a"}, level("b")]}, "nodeSelector", id="selector"),
        pytest.param({"evictionOrder": [level("a"), level("b", keepThreshold={"cpu": 101})]}, "<= 100", id="percent"),
        pytest.param({"evictionOrder": [level("a"), level("b")], "mode": "Some"}, "mode", id="mode"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: Any, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert(args, CustomPriorityArgs)
