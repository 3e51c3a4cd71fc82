"""Gangs in one part of the network: restarts, room that only a trial shows, and what happens without a topology."""

import json
from typing import Any

import msgspec
import pytest

from api.crds import ClusterNetworkTopology, PodGroup
from api.kube.objects import Pod
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.networktopology import POD_GROUPS, TOPOLOGIES, NetworkTopology
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from tests.schedobjects import drain, engine, node, pod

KINDS: dict[str, Any] = {
    "coscheduling": Coscheduling,
    "networktopology": NetworkTopology,
    "noderesourcesfit": NodeResourcesFit,
    "nodeports": NodePorts,
    "defaultpreemption": DefaultPreemption,
}
GANG = "gang.scheduling.koordinator.sh/"
SELECTOR = "scheduling.koordinator.sh/network-topology-selector"
MUST = [{"layer": "Block", "strategy": "MustGather"}]
PREFER = [{"layer": "Block", "strategy": "PreferGather"}]


def topology(made: Engine) -> None:
    spec = [
        {"topologyLayer": "Spine", "labelKey": ["spine"]},
        {"topologyLayer": "Block", "parentTopologyLayer": "Spine", "labelKey": ["block"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Block"},
    ]
    document = {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": spec}}
    shown = msgspec.convert(document, ClusterNetworkTopology)
    made.on_object(ObjectEvent(TOPOLOGIES, Action.ADD, Key("", "default"), None, shown), 0.0)


def cluster(blocks: dict[str, int], placed: tuple[Pod, ...] = (), *, known: bool = True) -> Engine:
    """Blocks of so many nodes of 4 CPUs, named by block and number; the first letter of a block is its spine."""
    nodes = [
        node(f"{block}-{number}", labels={"spine": block[0], "block": block})
        for block, count in blocks.items()
        for number in range(count)
    ]
    made = engine(nodes, placed, kinds=KINDS)
    if known:
        topology(made)
    return made


def member(name: str, minimum: int, rules: Any = MUST, *, cpu: str = "4", **fields: Any) -> Pod:
    text = rules if isinstance(rules, str) else json.dumps({"gatherStrategy": rules})
    keys = {GANG + "name": "g", GANG + "min-available": str(minimum), GANG + "network-topology-spec": text}
    return pod(name, {"cpu": cpu}, annotations=keys | fields.pop("annotations", {}), **fields)


def submit(made: Engine, *pods: Pod, now: float = 0.0) -> dict[str, str]:
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    return drain(made, now)


def blocks_of(bound: dict[str, str]) -> set[str]:
    return {name.partition("-")[0] for name in bound.values()}


def reason(made: Engine) -> str:
    return next(text for text in (outcome.message for outcome in made.outcomes) if text)


def test_a_gang_waits_for_one_block_that_holds_it_and_preempts_nothing() -> None:
    low = pod("low", {"cpu": "4"}, nodeName="a1-0", priority=1)
    made = cluster({"a1": 3, "a2": 2}, (low,))
    assert submit(made, *(member(f"m{n}", 3, priority=9) for n in range(3))) == {}
    assert "4 node(s) in no part of the network that holds the whole gang" in reason(made)
    assert not made.chains
    made.on_pod(Action.DELETE, low, 60.0)
    assert blocks_of(drain(made, 60.0)) == {"a1"}


def test_the_block_with_the_least_room_is_taken() -> None:
    made = cluster({"a1": 4, "a2": 2, "b1": 3})
    assert blocks_of(submit(made, *(member(f"m{n}", 2) for n in range(2)))) == {"a2"}


def test_what_is_only_preferred_keeps_no_pod_from_a_node() -> None:
    made = cluster({"a1": 1, "b1": 1})
    assert len(submit(made, *(member(f"m{n}", 2, PREFER) for n in range(2)))) == 2
    unknown = cluster({"a1": 1, "b1": 1}, known=False)
    assert len(submit(unknown, *(member(f"m{n}", 2, PREFER) for n in range(2)))) == 2


def test_without_a_topology_what_must_be_near_waits_for_it() -> None:
    made = cluster({"a1": 2}, known=False)
    assert submit(made, *(member(f"m{n}", 2) for n in range(2))) == {}
    assert "ClusterNetworkTopology default: there is no such object" in reason(made)
    topology(made)
    assert len(drain(made, 60.0)) == 2


def test_a_member_that_comes_later_goes_to_the_block_of_the_others() -> None:
    placed = (member("m0", 2, nodeName="a1-0"), member("m1", 2, nodeName="a1-1"))
    made = cluster({"a1": 3, "a2": 1}, placed)
    assert submit(made, member("m2", 2)) == {"m2": "a1-2"}
    assert submit(made, member("m3", 2)) == {}


def test_room_that_only_a_trial_shows_is_tried() -> None:
    """By CPUs a node of the smaller block holds the gang; by ports a node holds one member."""
    made = cluster({"a1": 2, "a2": 8})
    container = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    bound = submit(made, *(member(f"m{n}", 6, cpu="500m", container=container) for n in range(6)))
    assert blocks_of(bound) == {"a2"}
    assert len(set(bound.values())) == 6


def test_members_are_laid_out_by_their_index() -> None:
    made = cluster({"a1": 3})
    ranks = {"x": "10", "y": "2", "z": "no number"}
    pods = [member(name, 3, annotations={GANG + "network-topology-index": rank}) for name, rank in ranks.items()]
    assert len({made.classes.info(each).cls for each in pods}) == 1
    assert submit(made, *pods) == {"y": "a1-0", "x": "a1-1", "z": "a1-2"}


def test_members_come_in_multiples() -> None:
    rules = [{"layer": "Spine", "strategy": "MustGather"}, {"layer": "Block", "podCountMultiple": 2}]
    made = cluster({"a1": 3, "a2": 3, "b1": 3, "b2": 2})
    bound = submit(made, *(member(f"m{n}", 4, rules) for n in range(4)))
    counts = [sum(name.startswith(block) for name in bound.values()) for block in ("a1", "a2", "b1", "b2")]
    assert sorted(counts) == [0, 0, 2, 2]


def test_a_pod_group_may_ask_for_it() -> None:
    made = cluster({"a1": 1, "a2": 2})
    asked = {GANG + "network-topology-spec": json.dumps({"gatherStrategy": MUST})}
    document = {"metadata": {"name": "g", "namespace": "default", "annotations": asked}, "spec": {"minMember": 2}}
    group = msgspec.convert(document, PodGroup)
    made.on_object(ObjectEvent(POD_GROUPS, Action.ADD, Key("default", "g"), None, group), 0.0)
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    assert blocks_of(submit(made, *(pod(f"m{n}", {"cpu": "4"}, labels=labels) for n in range(2)))) == {"a2"}


@pytest.mark.parametrize("text", ["{", "7", '{"gatherStrategy": [{"layer": 7}]}'])
def test_what_cannot_be_read_is_refused_by_name(text: str) -> None:
    made = cluster({"a1": 2})
    assert submit(made, member("m0", 1, text)) == {}
    assert "gang default/g: gang.scheduling.koordinator.sh/network-topology-spec" in reason(made)


def test_pods_of_a_selector_are_placed_near_each_other() -> None:
    made = cluster({"a1": 2, "b1": 2})
    bound: dict[str, str] = {}
    for number in range(2):
        bound |= submit(made, pod(f"p{number}", {"cpu": "4"}, annotations={SELECTOR: "s"}))
    assert len(blocks_of(bound)) == 1
