"""Pods leave a node whose condition lasts, one at a time, and do not go to another such node."""

import msgspec

from api.kube.meta import Condition
from api.kube.objects import Node
from controllers.descheduler.plugins.node_condition_aware import NodeConditionAware
from tests.descheduling import NOW, a_cluster, a_node, a_plugin, a_pod, a_workload, moved, ran

PODS = [a_pod("p0", "a"), a_pod("p1", "a", priority=-1), a_pod("p2", "b")]
WORKLOADS = [a_workload(replicas=50)]


def pressed(node: Node, type_: str = "DiskPressure", status: str = "True") -> Node:
    conditions = [*node.status.conditions, Condition(type_, status)]
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))


def test_only_what_lasts_moves_a_pod_and_a_gap_starts_anew() -> None:
    plugin = a_plugin(NodeConditionAware)
    bad = a_cluster([pressed(a_node("a")), a_node("b")], PODS, workloads=WORKLOADS)
    good = a_cluster([a_node("a"), a_node("b")], PODS, workloads=WORKLOADS)
    assert moved(ran(plugin, bad, NOW)) == []
    assert moved(ran(plugin, bad, NOW + 59)) == []
    assert moved(ran(plugin, bad, NOW + 60)) == ["p1"]
    assert moved(ran(plugin, good, NOW + 61)) == []
    assert moved(ran(plugin, bad, NOW + 120)) == []


def test_conditions_are_chosen_and_other_such_nodes_avoided() -> None:
    nodes = [pressed(a_node("a")), pressed(a_node("b"), "GpuLost", "True"), a_node("c")]
    cluster = a_cluster(nodes, PODS, workloads=WORKLOADS)
    args = {"lastingSeconds": 0, "conditions": [{"type": "GpuLost"}, {"type": "DiskPressure", "status": "False"}]}
    assert moved(ran(a_plugin(NodeConditionAware, **args), cluster)) == ["p2"]
    both = ran(
        a_plugin(NodeConditionAware, lastingSeconds=0, conditions=[{"type": "GpuLost"}, {"type": "DiskPressure"}]),
        cluster,
    )
    assert {each.avoid for each in both.wanted} == {("a", "b")}


def test_two_statuses_of_one_condition_are_both_heeded() -> None:
    nodes = [pressed(a_node("a")), pressed(a_node("b"), status="Unknown"), a_node("c")]
    stated = [{"type": "DiskPressure"}, {"type": "DiskPressure", "status": "Unknown"}]
    cluster = a_cluster(nodes, PODS, workloads=WORKLOADS)
    assert moved(ran(a_plugin(NodeConditionAware, lastingSeconds=0, conditions=stated), cluster)) == ["p1", "p2"]
