"""Koordinator's tables of placement by the network's topology, row by row."""

import json
from typing import Any

import msgspec
import pytest

from api.crds import ClusterNetworkTopology
from api.kube.objects import Pod
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.gang.network import Domain, Gathering, NetworkTree, distribute, layers_of, order
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.networktopology import TOPOLOGIES, NetworkTopology
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from tests.schedobjects import drain, engine, node, pod, totals
from tests.scheduler.upstream.reading import table

TABLES = table("network")
SPINE, BLOCK = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"
LAYERS = msgspec.convert(
    {
        "metadata": {"name": "default"},
        "spec": {
            "networkTopologySpec": [
                {"labelKey": [SPINE], "topologyLayer": "SpineLayer"},
                {"labelKey": [BLOCK], "parentTopologyLayer": "SpineLayer", "topologyLayer": "BlockLayer"},
                {"parentTopologyLayer": "BlockLayer", "topologyLayer": "NodeTopologyLayer"},
            ]
        },
    },
    ClusterNetworkTopology,
)
KINDS: dict[str, Any] = {
    "coscheduling": Coscheduling,
    "networktopology": NetworkTopology,
    "noderesourcesfit": NodeResourcesFit,
    "defaultpreemption": DefaultPreemption,
}
BLOCKS = {"node-8": "b1", "node-1": "b1", "node-7": "b2", "node-2": "b2"} | {
    "node-6": "b3", "node-3": "b3", "node-5": "b4", "node-4": "b4"
}  # fmt: skip


def cases(rows: list[Any]) -> list[Any]:
    return [pytest.param(row, id=row["name"]) for row in rows]


def tree_of(spines: dict[str, Any], multiples: dict[str, int]) -> dict[str, Domain]:
    """The weighed domains by name."""
    stated = [
        (node(name, labels={SPINE: spine, BLOCK: block}), room)
        for spine, blocks in spines.items()
        for block, nodes in blocks.items()
        for name, room in nodes.items()
    ]
    tree = NetworkTree(layers_of(LAYERS.spec), [(row, each) for row, (each, _) in enumerate(stated)])
    tree.weigh({row: room for row, (_, room) in enumerate(stated)}, {}, multiples)
    return {domain.name: domain for leaf in tree.leaves.values() for domain in leaf.lineage()}


def rules(stated: list[list[Any]]) -> str:
    keys = ("layer", "strategy", "podCountMultiple")
    return json.dumps({"gatherStrategy": [dict(zip(keys, rule, strict=False)) for rule in stated]})


@pytest.mark.parametrize("case", cases(TABLES["order"]["rows"]))
def test_which_domain_comes_first(case: dict[str, Any]) -> None:
    domains = tree_of(TABLES["order"]["tree"], {})
    first, *_ = sorted((domains[name] for name in case["blocks"]), key=lambda d: order(d, roomiest=case["roomiest"]))
    assert first.name == case["first"]


@pytest.mark.parametrize("case", cases(TABLES["weigh"]["rows"]))
def test_room_in_multiples(case: dict[str, Any]) -> None:
    domains = tree_of(TABLES["weigh"]["tree"], case["multiples"])
    assert {name: domain.offer for name, domain in domains.items() if name} == case["room"]


@pytest.mark.parametrize("case", cases(TABLES["distribute"]))
def test_members_of_nodes(case: dict[str, Any]) -> None:
    slots = distribute(tree_of(case["tree"], {})["s1"], case["members"], case.get("multiples", {}))
    assert {domain.name: count for domain, count in slots} == case["given"]


@pytest.mark.parametrize("case", cases(TABLES["multiples"]))
def test_multiples_that_are_read(case: dict[str, Any]) -> None:
    assert Gathering.read(rules(case["rules"])).multiples == case["multiples"]


def cluster(blocks: dict[str, str], placed: list[Pod]) -> Engine:
    nodes = [
        node(name, labels={SPINE: "s1" if block in ("b1", "b2") else "s2", BLOCK: block}, allocatable={"cpu": "16"})
        for name, block in blocks.items()
    ]
    made = engine(nodes, placed, kinds=KINDS)
    made.on_object(ObjectEvent(TOPOLOGIES, Action.ADD, Key("", "default"), None, LAYERS), 0.0)
    return made


@pytest.mark.parametrize("case", cases(TABLES["gangs"]))
def test_nodes_of_gangs(case: dict[str, Any]) -> None:
    priority = 1000 if "important" in case else 1
    taken = [pod(f"on-{name}", {"cpu": "16"}, nodeName=name, priority=priority) for name in case.get("taken", ())]
    made = cluster(BLOCKS, taken)
    prefix = "gang.scheduling.koordinator.sh/"
    keys = {"name": "g", "min-available": str(case["members"]), "network-topology-spec": rules(case["rules"])}
    annotations = {prefix + key: value for key, value in keys.items()}
    names = [f"pending-{number}" for number in range(case["members"])]
    for name in names:
        member = pod(name, {"cpu": str(case["cpu"])}, annotations=annotations, priority=1000)
        made.on_pod(Action.ADD, member, 0.0)
    assert drain(made) == dict(zip(names, case.get("nodes", ()), strict=False))
    chains = [write for chain in made.chains for write in chain.writes if write.verb is Verb.DELETE]
    assert len(chains) == case.get("victims", 0)
    for write in chains:
        made.on_pod(Action.DELETE, next(each for each in taken if each.metadata.name == write.key.name), 60.0)
    if chains:
        spines = {BLOCKS[name] in ("b1", "b2") for name in drain(made, 60.0).values()}
        assert len(spines) == 1


def test_nodes_near_pods_of_the_same_selector() -> None:
    case = TABLES["near"]
    annotations = {"scheduling.koordinator.sh/network-topology-selector": "x"}
    placed = [pod(f"on-{name}", {"cpu": "16"}, nodeName=name, annotations=annotations) for name in case["pods"]]
    made = cluster(BLOCKS | case["further"], placed)
    scores = totals(made, pod("p", {"cpu": "1"}, annotations=annotations))
    fit = totals(made, pod("q", {"cpu": "1"}))
    near = {name: scores[name] - fit[name] for name in case["order"]}
    assert sorted(near, key=lambda name: -near[name]) == case["order"]
    assert (near["node-2"], near["node-5"]) == (100, 0)


def test_what_the_status_states() -> None:
    made = cluster(BLOCKS, [])
    made.tick(60.0)
    (write,) = made.writes
    assert (write.verb, write.key) == (Verb.PATCH_STATUS, Key("", "default"))
    patch: Any = write.body
    rows = [
        [
            *(entry["topologyInfo"][key] for key in ("topologyLayer", "topologyName")),
            entry.get("parentTopologyInfo", {}).get("topologyName"),
            entry["childTopologyLayer"],
            entry.get("childTopologyNames", []),
            entry["nodeNum"],
        ]
        for entry in patch.body["status"]["detailStatus"]
    ]
    assert rows == TABLES["status"]
    made.writes.clear()
    shown = msgspec.convert({**msgspec.to_builtins(LAYERS), **patch.body}, ClusterNetworkTopology)
    made.on_object(ObjectEvent(TOPOLOGIES, Action.UPDATE, Key("", "default"), LAYERS, shown), 61.0)
    for now in (80.0, 100.0):
        made.tick(now)
    made.plugins["NetworkTopology"].leads()
    made.tick(120.0)
    assert not made.writes
