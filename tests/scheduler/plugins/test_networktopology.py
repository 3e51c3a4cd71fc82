"""Gangs in one part of the network: restarts, room that only a trial shows, and what happens without a topology."""

import json
from typing import Any

import msgspec
import pytest

from api.crds import ClusterNetworkTopology, PodGroup
from api.kube.device import Device
from api.kube.objects import Pod
from api.placement import PlacementRequest, SimulatedPod
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.gang import search
from scheduler.gang.network import NetworkTree
from scheduler.plugins import networktopology
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.deviceshare import DEVICES, DeviceShare
from scheduler.plugins.networktopology import POD_GROUPS, TOPOLOGIES, NetworkTopology
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.simulated_placement import simulate
from tests.schedobjects import Cellars, drain, engine, node, pod

KINDS: dict[str, Any] = {
    "coscheduling": Coscheduling,
    "networktopology": NetworkTopology,
    "noderesourcesfit": NodeResourcesFit,
    "nodeports": NodePorts,
    "defaultpreemption": DefaultPreemption,
}
GANG = "gang.scheduling.koordinator.sh/"
SHARE = {"requests": {"koordinator.sh/gpu-core": "60", "koordinator.sh/gpu-memory-ratio": "60"}}
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


def with_cards(cards: dict[str, int]) -> Engine:
    """Nodes with so many GPUs, named by block and number; those whose number is z are avoided."""
    each = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    nodes = [
        node(
            name,
            labels={"spine": name[0], "block": name.partition("-")[0]} | ({"cellar": ""} if name[-1] == "z" else {}),
            allocatable={key: str(100 * count) for key in each},
        )
        for name, count in cards.items()
    ]
    made = engine(nodes, kinds={**KINDS, "deviceshare": DeviceShare, "cellars": Cellars})
    topology(made)
    for name, count in cards.items():
        devices = [{"type": "gpu", "minor": minor, "health": True, "resources": each} for minor in range(count)]
        device = msgspec.convert({"metadata": {"name": name}, "spec": {"devices": devices}}, Device)
        made.on_object(ObjectEvent(DEVICES, Action.ADD, Key("", name), None, device), 0.0)
    return made


def submit(made: Engine, *pods: Pod, now: float = 0.0) -> dict[str, str]:
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    return drain(made, now)


def blocks_of(bound: dict[str, str]) -> set[str]:
    return {name.partition("-")[0] for name in bound.values()}


def reason(made: Engine) -> str:
    return next(text for text in (outcome.message for outcome in made.outcomes) if text)


def test_a_gang_waits_for_one_block_that_holds_it() -> None:
    other = pod("other", {"cpu": "4"}, nodeName="a1-0", priority=9)
    made = cluster({"a1": 3, "a2": 2}, (other,))
    assert submit(made, *(member(f"m{n}", 3, priority=9) for n in range(3))) == {}
    assert "4 node(s) in no part of the network that holds the whole gang" in reason(made)
    made.on_pod(Action.DELETE, other, 60.0)
    assert blocks_of(drain(made, 60.0)) == {"a1"}


def victims(made: Engine) -> list[str]:
    return [write.key.name for chain in made.chains for write in chain.writes if write.verb is Verb.DELETE]


def test_a_later_member_preempts_where_the_others_are() -> None:
    placed = [member(f"m{n}", 2, nodeName=f"a1-{n}", priority=9) for n in range(2)]
    low = [pod(f"low-{name}", {"cpu": "4"}, nodeName=name, priority=rank) for name, rank in (("a1-2", 5), ("a2-0", 1))]
    made = cluster({"a1": 3, "a2": 1}, (*placed, *low))
    assert submit(made, member("m2", 2, priority=9)) == {}
    assert victims(made) == ["low-a1-2"]
    made.on_pod(Action.DELETE, low[0], 60.0)
    assert drain(made, 60.0) == {"m2": "a1-2"}


@pytest.mark.parametrize(
    ("known", "rules"),
    [
        pytest.param(False, MUST, id="no-topology"),
        pytest.param(True, [{"layer": "Block", "podCountMultiple": 2}], id="multiples"),
    ],
)
def test_no_victims_where_room_alone_is_not_enough(known: bool, rules: Any) -> None:
    low = [pod(f"low-{n}", {"cpu": "4"}, nodeName=f"a1-{n}", priority=1) for n in range(2)]
    made = cluster({"a1": 2}, tuple(low), known=known)
    assert submit(made, *(member(f"m{n}", 2, rules, priority=9) for n in range(2))) == {}
    assert not victims(made)


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


def test_many_parts_without_room_do_not_hide_the_one_with_it() -> None:
    """By CPUs each of 83 nodes holds the gang; by ports each holds one member, and one block has three nodes."""
    made = cluster({f"a{n}": 2 for n in range(40)} | {"b1": 3})
    container = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    bound = submit(made, *(member(f"m{n}", 3, cpu="100m", container=container) for n in range(3)))
    assert sorted(bound.values()) == ["b1-0", "b1-1", "b1-2"]


def test_nodes_that_take_more_than_those_tried_first_are_found() -> None:
    """A node whose ports are partly taken says nothing of the node that holds the gang."""
    taken = [pod(f"t{n}", nodeName=f"a{n}-0", container={"ports": [{"hostPort": 80}]}) for n in range(3)]
    made = cluster({f"a{n}": 1 for n in range(3)} | {"z1": 1}, tuple(taken))
    web = member("m0", 2, cpu="100m", container={"ports": [{"hostPort": 81}]})
    worker = member("m1", 2, cpu="100m", container={"ports": [{"hostPort": 80}]})
    assert set(submit(made, web, worker).values()) == {"z1-0"}


def test_a_plan_that_takes_long_goes_on_from_second_to_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with two cards holds two of three members, which shows when they are tried; an attempt may try few."""
    monkeypatch.setattr(search, "MEMBERS_PER_ATTEMPT", 8)
    made = with_cards({f"a{n}-0": 2 for n in range(20)} | {"a99-0": 3})
    made.on_pod(Action.ADD, pod("low", {"cpu": "1"}, nodeName="a0-0", priority=-1), 0.0)
    assert submit(made, *(member(f"m{n}", 3, cpu="1", container={"resources": SHARE}) for n in range(3))) == {}
    assert "which is being worked out, has not settled yet" in reason(made)
    bound: dict[str, str] = {}
    seconds = 0
    while not bound and seconds < 60:
        seconds += 1
        made.tick(float(seconds))
        bound = {name: where for name, where in drain(made, float(seconds)).items() if name.startswith("m")}
    assert bound == dict.fromkeys(("m0", "m1", "m2"), "a99-0")
    assert 2 < seconds < 30
    assert victims(made) == []


@pytest.mark.parametrize(
    ("cards", "taken"),
    [
        pytest.param({f"a{n}-0": 2 for n in range(20)} | {"a99-0": 3, "b1-z": 3}, "a99-0", id="another-part-holds-it"),
        pytest.param({f"a{n}-0": 2 for n in range(20)} | {"a99-z": 3}, "a99-z", id="no-other-part-holds-it"),
        pytest.param({f"a{n}-z": 2 for n in range(20)} | {"a99-z": 3}, "a99-z", id="none-is-left-but-avoided-nodes"),
    ],
)
def test_a_plan_of_avoided_nodes_is_made_when_no_other_can_be(
    monkeypatch: pytest.MonkeyPatch, cards: dict[str, int], taken: str
) -> None:
    """Plans of either kind take several attempts."""
    monkeypatch.setattr(search, "MEMBERS_PER_ATTEMPT", 8)
    made = with_cards(cards)
    bound = submit(made, *(member(f"m{n}", 3, cpu="1", container={"resources": SHARE}) for n in range(3)))
    assert bound == {}
    seconds = 0
    while not bound and seconds < 30:
        seconds += 1
        made.tick(float(seconds))
        bound = drain(made, float(seconds))
    assert bound == dict.fromkeys(("m0", "m1", "m2"), taken)
    assert seconds > 2


def test_members_follow_a_plan_of_avoided_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of four blocks holds the gang but with the avoided node of one; what is left of it fits there as little."""
    monkeypatch.setattr(search, "MEMBERS_PER_ATTEMPT", 8)
    cards = {f"a{block}-{number}": 2 for block in range(4) for number in range(5)} | {"a2-z": 2}
    made = with_cards(cards)
    names = [f"m{n:02}" for n in range(11)]
    bound = submit(made, *(member(name, 11, cpu="100m", container={"resources": SHARE}) for name in names))
    seconds = 0
    while not bound and seconds < 60:
        seconds += 1
        made.tick(float(seconds))
        bound = drain(made, float(seconds))
    assert sorted(bound) == names
    assert blocks_of(bound) == {"a2"}


def test_a_plan_that_no_part_holds_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """By sums each of 40 blocks holds the gang, by cards none, and few of the 200 nodes may be tried for that."""
    monkeypatch.setattr(search, "MEMBERS_PER_ATTEMPT", 8)
    monkeypatch.setattr(networktopology, "LOOKED_AT", 4)
    made = with_cards({f"a{block}-{number}": 2 for block in range(40) for number in range(5)})
    submit(made, *(member(f"m{n}", 11, cpu="100m", container={"resources": SHARE}) for n in range(11)))
    assert "which is being worked out, has not settled yet" in reason(made)
    seconds = 0
    while "which is being worked out" in reason(made) and seconds < 400:
        seconds += 1
        made.outcomes.clear()
        made.tick(float(seconds))
        assert drain(made, float(seconds)) == {}
    assert "in no part of the network that holds the whole gang" in reason(made)
    assert 2 < seconds < 30
    made.outcomes.clear()
    made.tick(seconds + 1.0)
    assert made.schedule_one(seconds + 1.0) is None, "nothing is tried before something changes"


def test_plans_beyond_the_places_for_them_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gangs, each with a plan that takes several attempts, and a place for one of them."""
    monkeypatch.setattr(search, "MEMBERS_PER_ATTEMPT", 8)
    monkeypatch.setattr(networktopology, "MAX_SEARCHES", 1)
    made = with_cards({f"a{n}-0": 2 for n in range(20)} | {"a98-0": 3, "a99-0": 3})
    names = {f"{gang}{n}": {GANG + "name": gang} for gang in "gh" for n in range(3)}
    share = {"resources": SHARE}
    pods = [member(name, 3, cpu="1", container=share, annotations=keys) for name, keys in names.items()]
    bound = submit(made, *pods)
    seconds = 0
    while len(bound) < len(names) and seconds < 60:
        seconds += 1
        made.tick(float(seconds))
        bound |= drain(made, float(seconds))
    assert {name[0]: where for name, where in bound.items()}.keys() == {"g", "h"}
    assert set(bound.values()) == {"a98-0", "a99-0"}


def test_a_plan_whose_gang_is_gone_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MEMBERS_PER_ATTEMPT", 8)
    monkeypatch.setattr(networktopology, "MAX_SEARCHES", 1)
    made = with_cards({f"a{n}-0": 2 for n in range(20)} | {"a99-0": 3})
    share = {"resources": SHARE}
    gone = [member(f"g{n}", 3, cpu="1", container=share) for n in range(3)]
    assert submit(made, *gone) == {}
    for each in gone:
        made.on_pod(Action.DELETE, each, 0.5)
    keys = {GANG + "name": "h"}
    bound = submit(made, *(member(f"h{n}", 3, cpu="1", container=share, annotations=keys) for n in range(3)), now=0.5)
    seconds = 0
    while not bound and seconds < 30:
        seconds += 1
        made.tick(float(seconds))
        bound = drain(made, float(seconds))
    assert bound == dict.fromkeys(("h0", "h1", "h2"), "a99-0")


def test_a_node_that_changes_within_its_part_leaves_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree is made anew for a node that moves, and not for one that offers more."""
    made = cluster({"a1": 2, "a2": 2})
    trees = []
    build = NetworkTree.__init__

    def counted(self: NetworkTree, *stated: Any) -> None:
        trees.append(self)
        build(self, *stated)

    monkeypatch.setattr(NetworkTree, "__init__", counted)
    made.tick(1.0)
    assert len(trees) == 1
    made.on_node(Action.UPDATE, node("a1-0", labels={"spine": "a", "block": "a1"}, allocatable={"cpu": "5"}), 2.0)
    made.tick(2.0)
    assert len(trees) == 1
    made.on_node(Action.UPDATE, node("a1-0", labels={"spine": "a", "block": "a2"}, allocatable={"cpu": "5"}), 3.0)
    made.tick(3.0)
    assert len(trees) == 2
    bound = submit(made, *(member(f"m{n}", 3) for n in range(3)), now=4.0)
    assert set(bound.values()) == {"a1-0", "a2-0", "a2-1"}


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


def test_cards_that_several_pods_cannot_share_are_no_room() -> None:
    """By their sum two cards hold three pods of 60 percent; each card holds one."""
    made = with_cards(dict.fromkeys(("a1-0", "a2-0", "a2-1"), 2))
    bound = submit(made, *(member(f"m{n}", 3, cpu="1", container={"resources": SHARE}) for n in range(3)))
    assert blocks_of(bound) == {"a2"}
    assert sorted(bound) == ["m0", "m1", "m2"]


def test_a_member_that_is_only_tried_stays_with_the_others() -> None:
    placed = tuple(member(f"m{n}", 2, cpu="1", nodeName=f"a1-{n}", uid=f"m{n}") for n in range(2))
    made = cluster({"a1": 2, "a2": 2}, placed)
    before = made.snapshot.requested.copy()
    request = PlacementRequest([SimulatedPod("m0", excluded_nodes=["a1-0"])])
    (answer,) = simulate(made, request, 0.0).placements
    assert answer.node == "a1-1"
    request = PlacementRequest([SimulatedPod("m0", excluded_nodes=["a1-0", "a1-1"])])
    (answer,) = simulate(made, request, 0.0).placements
    assert not answer.node
    assert "2 node(s) outside of the part of the network" in answer.message
    assert (made.snapshot.requested == before).all()


def test_a_member_takes_the_node_that_is_kept_for_it() -> None:
    made = cluster({"a1": 2})
    for number in range(2):
        made.on_pod(Action.ADD, member(f"m{number}", 2), 0.0)
    (kept,) = (info for info in made.pending() if info.key == "default/m1")
    made.nominator.add(kept, 0, frozenset())
    assert drain(made) == {"m0": "a1-1", "m1": "a1-0"}
