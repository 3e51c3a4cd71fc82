"""The network's tree from layers and labels."""

from typing import Any

import msgspec
import pytest

from api.crds.placement import ClusterNetworkTopologySpec
from api.kube.annotations import AnnotationError
from scheduler.gang.network import Gathering, NetworkError, NetworkTree, layers_of
from tests.schedobjects import node


def layers(*stated: tuple[str, str, list[str]]) -> ClusterNetworkTopologySpec:
    spec = [{"topologyLayer": name, "parentTopologyLayer": parent, "labelKey": keys} for name, parent, keys in stated]
    return msgspec.convert({"networkTopologySpec": spec}, ClusterNetworkTopologySpec)


NODES = ("NodeTopologyLayer", "Block", [])
TWO = layers(("Spine", "", ["spine", "old-spine"]), ("Block", "Spine", ["block"]), NODES)


def test_layers_are_read_from_the_nodes_up() -> None:
    assert [layer.topology_layer for layer in layers_of(TWO)] == ["Spine", "Block", "NodeTopologyLayer"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(layers(), id="none"),
        pytest.param(layers(("Block", "", ["block"])), id="no-nodes"),
        pytest.param(layers(NODES), id="missing-parent"),
        pytest.param(layers(NODES, ("Block", "", []), ("Lost", "", [])), id="beside-the-chain"),
        pytest.param(layers(NODES, ("Block", "NodeTopologyLayer", []), ("Lost", "", [])), id="ring"),
        pytest.param(layers(NODES, ("Block", "", ["a"]), ("Block", "", ["b"])), id="twice"),
        pytest.param(
            layers(NODES, *((f"{'Block' if n == 0 else n}", f"{n + 1}", ["a"]) for n in range(40))), id="deep"
        ),
    ],
)
def test_layers_that_make_no_tree_are_refused(spec: ClusterNetworkTopologySpec) -> None:
    if len(spec.network_topology_spec) == 1 and spec.network_topology_spec[0].topology_layer == "NodeTopologyLayer":
        # The layer above the only one counts as the cluster.
        assert len(layers_of(spec)) == 1
        return
    with pytest.raises(NetworkError, match="layer"):
        layers_of(spec)


def places(**labels: dict[str, str]) -> dict[str, list[str]]:
    named = list(labels)
    tree = NetworkTree(layers_of(TWO), [(row, node(name, labels=labels[name])) for row, name in enumerate(named)])
    return {named[row]: [domain.name for domain in leaf.lineage()][1:-1] for row, leaf in tree.leaves.items()}


def test_nodes_are_where_their_labels_say() -> None:
    found = places(
        a={"spine": "s", "block": "b"},
        b={"old-spine": "s", "block": "b"},
        c={"old-spine": "t", "spine": "s"},
        d={"block": "b"},
        e={"spine": "t", "block": "b"},
    )
    assert found == {"a": ["b", "s"], "b": ["b", "s"], "c": ["c", "s"], "e": ["b", "t"]}


def test_domains_of_one_name_in_two_places_are_two() -> None:
    labels = [{"spine": "s", "block": "b"}, {"spine": "t", "block": "b"}]
    tree = NetworkTree(layers_of(TWO), [(row, node(f"n{row}", labels=each)) for row, each in enumerate(labels)])
    tree.weigh({0: 1, 1: 1}, {}, {})
    assert [domain.offer for domain in tree.at("Block")] == [1, 1]
    assert next(tree.placements("Block", {}, 2, frozenset()), None) is None


@pytest.mark.parametrize("text", ["", "[]", '{"gatherStrategy": 1}', '{"gatherStrategy": [{"podCountMultiple": "x"}]}'])
def test_what_is_no_spec_is_an_error(text: str) -> None:
    with pytest.raises(AnnotationError):
        Gathering.read(text)


def test_the_narrowest_layer_that_must_hold_all_counts() -> None:
    tree = NetworkTree(layers_of(TWO), [])
    wanted: list[tuple[Any, str]] = [
        (("Spine", "Block"), "Block"),
        (("Spine", "Lost"), "Spine"),
        (("Lost",), "Lost"),
        ((), "ClusterTopologyLayer"),
    ]
    for must, layer in wanted:
        assert tree.must_layer(Gathering(must)) == layer
    assert tree.at("Lost") == []
