"""A named node, and cordoned nodes."""

from scheduler.plugins.nodename import NodeName
from scheduler.plugins.nodeunschedulable import NodeUnschedulable
from tests.schedobjects import engine, node, pod, rejected


def test_only_the_named_node_passes() -> None:
    made = engine([node("a"), node("b")], kinds={"nodename": NodeName})
    assert rejected(made, pod("p", nodeName="b")) == {
        "a": ["node(s) didn't match the requested node name"],
        "b": [],
    }
    assert rejected(made, pod("q")) == {"a": [], "b": []}


def test_a_name_that_is_no_node_passes_nowhere() -> None:
    made = engine([node("a")], kinds={"nodename": NodeName})
    assert rejected(made, pod("p", nodeName="gone"))["a"]


def test_a_cordon_repels_pods_that_do_not_tolerate_it() -> None:
    made = engine([node("a", unschedulable=True), node("b")], kinds={"nodeunschedulable": NodeUnschedulable})
    assert rejected(made, pod("p")) == {"a": ["node(s) were unschedulable"], "b": []}
    tolerant = pod("q", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert rejected(made, tolerant) == {"a": [], "b": []}
    made.snapshot.set_node(node("a"))
    assert rejected(made, pod("p")) == {"a": [], "b": []}
