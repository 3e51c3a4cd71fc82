"""Pods go where their volumes can, and claims are settled before the pod is bound."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kube.selectors import NodeSelector
from api.kube.storage import Claim, CsiDriver, CsiStorageCapacity, PersistentVolume, StorageClass
from api.placement import PlacementRequest, SimulatedPod
from cluster.resources import Key, Resource
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.matching.volumeindex import ReachRows
from scheduler.matching.volumes import CAPACITIES, CLAIMS, CLASSES, DRIVERS, VOLUMES, smallest_volumes
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.volumebinding import VolumeBinding
from scheduler.simulated_placement import simulate
from tests.schedobjects import engine, node, pod, rejected

KINDS = {"volumebinding": VolumeBinding}
FAR = "node(s) didn't match PersistentVolume's node affinity"
NONE = "node(s) didn't find available persistent volumes to bind"


def zone(*names: str) -> dict[str, Any]:
    expression = {"key": "zone", "operator": "In", "values": list(names)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def claim(name: str, **spec: Any) -> Claim:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if spec.get("volumeName") else {}
    annotations |= spec.pop("annotations", {})
    metadata = {"name": name, "namespace": "default", "uid": spec.pop("uid", name), "annotations": annotations}
    metadata |= spec.pop("metadata", {})
    status = {"phase": spec.pop("phase", "")}
    size = {"requests": {"storage": spec.pop("size", "1Gi")}}
    return msgspec.convert({"metadata": metadata, "spec": {"resources": size, **spec}, "status": status}, Claim)


def volume(name: str, size: str = "1Gi", **spec: Any) -> PersistentVolume:
    metadata = {"name": name, "resourceVersion": "7", **spec.pop("metadata", {})}
    status = {"phase": spec.pop("phase", "")}
    document = {"metadata": metadata, "spec": {"capacity": {"storage": size}, **spec}, "status": status}
    return msgspec.convert(document, PersistentVolume)


def storage(name: str, mode: str = "WaitForFirstConsumer", **fields: Any) -> StorageClass:
    document = {"metadata": {"name": name}, "volumeBindingMode": mode, **fields}
    return msgspec.convert(document, StorageClass)


def show(made: Engine, *objects: Any, action: Action = Action.ADD, now: float = 0.0) -> None:
    kinds: dict[type, Resource[Any]] = {
        Claim: CLAIMS,
        PersistentVolume: VOLUMES,
        StorageClass: CLASSES,
        CsiDriver: DRIVERS,
        CsiStorageCapacity: CAPACITIES,
    }
    for item in objects:
        key = Key(item.metadata.namespace, item.metadata.name)
        gone = action is Action.DELETE
        made.on_object(ObjectEvent(kinds[type(item)], action, key, item if gone else None, None if gone else item), now)


def user(name: str, *claims: str) -> Any:
    return pod(name, volumes=[{"name": item, "persistentVolumeClaim": {"claimName": item}} for item in claims])


def cluster() -> Engine:
    return engine([node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"})], kinds=KINDS)


def reason(made: Engine, candidate: Any) -> str:
    made.on_pod(Action.ADD, candidate, 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    return outcome.message


def test_a_bound_volume_must_be_reached() -> None:
    made = cluster()
    show(made, claim("c", volumeName="v"), volume("v", nodeAffinity=zone("y")))
    assert rejected(made, user("p", "c")) == {"a": [FAR], "b": []}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        pytest.param([], 'persistentvolumeclaim "c" not found', id="no-claim"),
        pytest.param([claim("c", volumeName="v")], 'persistentvolume "v" not found', id="no-volume"),
        pytest.param([claim("c")], "pod has unbound immediate PersistentVolumeClaims", id="no-class"),
        pytest.param(
            [claim("c", storageClassName="s"), storage("s", "Immediate")],
            "pod has unbound immediate PersistentVolumeClaims",
            id="immediate",
        ),
    ],
)
def test_claims_that_no_node_can_help(objects: list[Any], message: str) -> None:
    made = cluster()
    show(made, *objects)
    assert reason(made, user("p", "c")) == f"0/2 nodes are available: {message}."


def test_a_provisioner_makes_volumes_where_the_class_allows() -> None:
    made = cluster()
    topology = {"matchLabelExpressions": [{"key": "zone", "values": ["x"]}]}
    show(made, claim("c", storageClassName="s"))
    show(made, storage("s", provisioner="csi.example.com", allowedTopologies=[topology]))
    assert rejected(made, user("p", "c")) == {"a": [], "b": [NONE]}


def test_without_a_provisioner_a_volume_must_be_there() -> None:
    made = cluster()
    local = storage("s", provisioner="kubernetes.io/no-provisioner")
    show(made, claim("c", storageClassName="s", size="2Gi"), local)
    assert rejected(made, user("p", "c")) == {"a": [NONE], "b": [NONE]}
    show(made, volume("small", "1Gi", storageClassName="s", nodeAffinity=zone("x")))
    show(made, volume("fits", "3Gi", storageClassName="s", nodeAffinity=zone("y")))
    assert rejected(made, user("p", "c")) == {"a": [NONE], "b": []}


def test_the_pod_waits_until_its_claim_is_bound() -> None:
    made = cluster()
    show(made, claim("c", storageClassName="s"), storage("s", provisioner="csi.example.com"))
    reason(made, user("p", "c"))
    assert not made.bindings
    [(_, row)] = made.waiting().values()
    where = made.snapshot.names[row]
    made.tick(1.0)
    [write] = [item for item in made.writes if item.resource.plural == "persistentvolumeclaims"]
    body: Any = write.body
    assert body.body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": where}
    selected = {"volume.kubernetes.io/selected-node": where}
    show(made, claim("c", storageClassName="s", annotations=selected), action=Action.UPDATE)
    assert not made.bindings
    show(made, volume("v"), claim("c", storageClassName="s", volumeName="v", annotations=selected))
    assert made.bindings[0].placed.node == where


def test_a_claim_that_loses_its_node_gives_the_node_up() -> None:
    made = cluster()
    show(made, claim("c", storageClassName="s"), storage("s", provisioner="csi.example.com"))
    reason(made, user("p", "c"))
    other = {"volume.kubernetes.io/selected-node": "elsewhere"}
    show(made, claim("c", storageClassName="s", annotations=other), action=Action.UPDATE)
    assert made.waiting() == {}
    assert made.snapshot.pods == {}


def test_one_volume_is_promised_once() -> None:
    made = cluster()
    show(made, storage("s", provisioner="kubernetes.io/no-provisioner"))
    show(made, volume("v", storageClassName="s"))
    show(made, claim("c", storageClassName="s"), claim("d", storageClassName="s"))
    reason(made, user("p", "c"))
    assert len(made.waiting()) == 1
    assert "volumes" in reason(made, user("q", "d"))
    made.tick(1.0)
    [write] = [item for item in made.writes if item.resource.plural == "persistentvolumes"]
    body: Any = write.body
    assert body.body["spec"]["claimRef"]["name"] == "c"


@pytest.mark.parametrize("seconds", [pytest.param(0, id="at-once"), pytest.param(3, id="after-ticks")])
def test_each_row_is_asked_for_the_volumes_that_reach_it_alone(seconds: int) -> None:
    """Selectors of few rows, of many, and of every row; also after nodes got other labels."""
    zones = {f"n{n}": "east" if n % 2 else "west" for n in range(150)}
    made = engine([node(name, labels={"zone": where}) for name, where in zones.items()], kinds=KINDS)
    show(made, storage("local", provisioner="kubernetes.io/no-provisioner"))
    for number, reach in enumerate([zone("east"), zone("east", "north"), zone("north")]):
        show(made, volume(f"v{number}", storageClassName="local", nodeAffinity=reach))
    show(made, *(claim(f"c{n}", storageClassName="local") for n in range(4)))
    for second in range(seconds):
        made.tick(float(second))
    for number in range(2):
        made.on_pod(Action.ADD, user(f"p{number}", f"c{number}"), 5.0)
        outcome = made.schedule_one(5.0)
        assert outcome is not None
        assert zones[outcome.node] == "east"
    assert NONE in reason(made, user("p2", "c2"))
    made.on_node(Action.UPDATE, node("n0", labels={"zone": "north"}), 6.0)
    made.on_pod(Action.ADD, user("p3", "c3"), 6.0)
    outcome = made.schedule_one(6.0)
    assert outcome is not None
    assert outcome.node == "n0"


def test_a_node_with_other_labels_has_its_own_volumes_looked_at_anew_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes of other nodes stay looked at, and an attempt after that asks for what the node's labels mean."""
    names = [f"n{number}" for number in range(50)]
    made = engine([node(name, labels={"zone": name}) for name in names], kinds=KINDS)
    show(made, storage("local", provisioner="kubernetes.io/no-provisioner"))
    show(made, *(volume(f"v{name}", storageClassName="local", nodeAffinity=zone(name)) for name in names))
    show(made, claim("c", storageClassName="local"))
    made.tick(0.0)
    looked_at: list[bytes] = []
    learn = ReachRows.learn

    def counted(rows: ReachRows, key: bytes, selector: NodeSelector | None) -> None:
        looked_at.append(key)
        learn(rows, key, selector)

    monkeypatch.setattr(ReachRows, "learn", counted)
    made.on_node(Action.UPDATE, node("n0", labels={"zone": "n1", "rack": "r"}), 1.0)
    made.tick(1.0)
    assert len(looked_at) == 2
    made.on_node(Action.DELETE, node("n1", labels={"zone": "n1"}), 2.0)
    made.on_node(Action.ADD, node("new", labels={"zone": "n0"}), 2.0)
    made.tick(2.0)
    assert len(looked_at) == 4
    found = rejected(made, user("p", "c"))
    assert not any(found.values()), "each node reaches a volume still"


TERMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(
                st.builds(
                    lambda key, operator, values: {
                        "key": key,
                        "operator": operator,
                        "values": values if operator in ("In", "NotIn") else [],
                    },
                    st.sampled_from(["zone", "rack"]),
                    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
                    st.lists(st.sampled_from("xyz"), min_size=1, max_size=2),
                ),
                max_size=2,
            ),
            "matchFields": st.lists(
                st.builds(
                    lambda name: {"key": "metadata.name", "operator": "In", "values": [name]}, st.sampled_from("ab")
                ),
                max_size=1,
            ),
        },
    ),
    min_size=1,
    max_size=2,
)
LABELS = st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from("xyz"))


@given(
    reaches=st.lists(TERMS, min_size=1, max_size=4),
    changes=st.lists(st.tuples(st.sampled_from("abc"), st.none() | LABELS), min_size=1, max_size=6),
)
def test_reach_agrees_with_one_that_was_learned_after_every_change(
    reaches: list[Any], changes: list[tuple[str, dict[str, str] | None]]
) -> None:
    """Nodes come, go and get other labels; what was kept says the same as what is looked at anew."""
    shown = [
        volume(f"v{number}", storageClassName="s", nodeAffinity={"required": {"nodeSelectorTerms": terms}})
        for number, terms in enumerate(reaches)
    ]
    there: dict[str, dict[str, str]] = {"a": {"zone": "x"}}
    made = engine([node("a", labels=there["a"])], kinds=KINDS)
    show(made, LOCAL, claim("c", **WANTED), claim("d", **WANTED), *shown)
    made.tick(0.0)
    for number, (name, labels) in enumerate(changes):
        if labels is None:
            if there.pop(name, None) is not None:
                made.on_node(Action.DELETE, node(name), 1.0)
        else:
            made.on_node(Action.UPDATE if name in there else Action.ADD, node(name, labels=labels), 1.0)
            there[name] = labels
        expected = engine([node(each, labels=known) for each, known in there.items()], kinds=KINDS)
        show(expected, LOCAL, claim("c", **WANTED), claim("d", **WANTED), *shown)
        for claims in (("c",), ("c", "d")):
            one = user(f"p{number}-{len(claims)}", *claims)
            assert rejected(made, one) == rejected(expected, one)


def test_smaller_claims_leave_larger_volumes_to_larger_ones() -> None:
    claims = [claim("big", size="5Gi"), claim("small", size="1Gi")]
    chosen, left = smallest_volumes(claims, [volume("v5", "5Gi"), volume("v1", "1Gi")], {}, "a")
    assert {key.name: item.metadata.name for key, item in chosen.items()} == {"big": "v5", "small": "v1"}
    assert left == []


def test_a_simulation_of_a_waiting_pod_does_not_disturb_its_wait() -> None:
    made = cluster()
    show(made, claim("c", storageClassName="s"), storage("s", provisioner="csi.example.com"))
    reason(made, user("p", "c"))
    answer = simulate(made, PlacementRequest([SimulatedPod(uid="uid-p")]), 1.0)
    assert answer.placements[0].node
    [(_, row)] = made.waiting().values()
    selected = {"volume.kubernetes.io/selected-node": made.snapshot.names[row]}
    show(made, volume("v"), claim("c", storageClassName="s", volumeName="v", annotations=selected))
    assert made.bindings[0].placed.row == row


LOCAL = storage("s", provisioner="kubernetes.io/no-provisioner")
MADE = storage("s", provisioner="csi.example.com")
WANTED = {"storageClassName": "s"}


def owner(name: str, uid: str = "") -> dict[str, str]:
    return {"namespace": "default", "name": name, "uid": uid}


@pytest.mark.parametrize(
    ("of_claim", "of_volume", "serves"),
    [
        pytest.param({}, {}, True, id="free"),
        pytest.param({}, {"claimRef": owner("c")}, True, id="set-aside-by-name"),
        pytest.param({}, {"claimRef": owner("c", "c")}, True, id="of-this-claim"),
        pytest.param({}, {"claimRef": owner("c", "old"), "phase": "Released"}, False, id="kept-of-a-deleted-claim"),
        pytest.param({}, {"claimRef": owner("d")}, False, id="set-aside-for-another"),
        pytest.param({}, {"phase": "Available"}, True, id="available"),
        pytest.param({}, {"phase": "Failed"}, False, id="failed"),
        pytest.param({}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False, id="being-deleted"),
        pytest.param({"selector": {"matchLabels": {"tier": "gold"}}}, {}, False, id="selector-misses"),
        pytest.param(
            {"selector": {"matchLabels": {"tier": "gold"}}},
            {"metadata": {"labels": {"tier": "gold"}}},
            True,
            id="selector-matches",
        ),
        pytest.param({"volumeAttributesClassName": "fast"}, {}, False, id="other-attributes-class"),
        pytest.param(
            {"volumeAttributesClassName": "fast"}, {"volumeAttributesClassName": "fast"}, True, id="attributes-class"
        ),
        pytest.param({"volumeMode": "Block"}, {}, False, id="other-mode"),
        pytest.param({"accessModes": ["ReadWriteMany"]}, {"accessModes": ["ReadWriteOnce"]}, False, id="access-mode"),
        pytest.param({"size": "2Gi"}, {}, False, id="too-small"),
    ],
)
def test_which_volumes_serve_a_claim(of_claim: dict[str, Any], of_volume: dict[str, Any], serves: bool) -> None:
    made = cluster()
    show(made, LOCAL, claim("c", **{**WANTED, **of_claim}), volume("v", storageClassName="s", **of_volume))
    assert rejected(made, user("p", "c")) == dict.fromkeys("ab", [] if serves else [NONE])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        pytest.param(
            claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, **WANTED),
            'persistentvolumeclaim "c" is being deleted',
            id="deleted",
        ),
        pytest.param(
            claim("c", volumeName="v", phase="Lost"),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="lost",
        ),
    ],
)
def test_claims_in_a_state_that_serves_nobody(item: Claim, message: str) -> None:
    made = cluster()
    show(made, MADE, volume("v"), item)
    assert message in reason(made, user("p", "c"))


def test_a_node_that_was_chosen_for_a_claim_stays_chosen() -> None:
    made = cluster()
    show(made, MADE, claim("c", annotations={"volume.kubernetes.io/selected-node": "b"}, **WANTED))
    other = "node(s) other than the one that was chosen for a volume"
    assert rejected(made, user("p", "c")) == {"a": [other], "b": []}


def test_two_pods_of_one_claim_go_to_one_node() -> None:
    made = cluster()
    show(made, MADE, claim("c", **WANTED))
    for name in ("p", "q"):
        reason(made, user(name, "c"))
    assert len({row for _, row in made.waiting().values()}) == 1
    assert len({write.key for write in made.writes if write.resource.plural == "persistentvolumeclaims"}) == 1


def test_a_volume_is_given_as_it_was_seen() -> None:
    made = cluster()
    show(made, LOCAL, volume("v", storageClassName="s"), claim("c", **WANTED))
    reason(made, user("p", "c"))
    [write] = [item for item in made.writes if item.resource.plural == "persistentvolumes"]
    body: Any = write.body
    assert body.body["metadata"] == {"resourceVersion": "7"}
    assert body.body["spec"]["claimRef"]["uid"] == "c"
    assert not write.repeat
    made.write_failed(write, "the object has been modified")
    assert not made.waiting()
    queued = made.queue.get("uid-p")
    assert queued is not None
    assert "a volume could not be bound: the object has been modified" in queued.reason


def test_a_pod_is_not_bound_to_a_node_that_its_volume_cannot_be_reached_from() -> None:
    made = cluster()
    show(made, MADE, claim("c", **WANTED))
    reason(made, user("p", "c"))
    [(_, row)] = made.waiting().values()
    elsewhere = "y" if made.snapshot.names[row] == "a" else "x"
    show(made, volume("v", nodeAffinity=zone(elsewhere)), claim("c", volumeName="v", **WANTED))
    assert not made.bindings
    assert not made.waiting()


def test_a_gang_that_does_not_fit_has_no_volume_made() -> None:
    kinds = {**KINDS, "fit": NodeResourcesFit, "gangs": Coscheduling}
    made = engine([node("a", allocatable={"cpu": "2"})], kinds=kinds)
    show(made, MADE, *(claim(f"c{index}", **WANTED) for index in range(3)))
    keys = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    for index in range(3):
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{index}"}}]
        made.on_pod(Action.ADD, pod(f"p{index}", {"cpu": "1"}, annotations=keys, volumes=volumes), 0.0)
    while made.schedule_one(0.0):
        pass
    made.tick(1.0)
    assert not [write for write in made.writes if write.resource.plural.startswith("persistentvolume")]
    made.on_node(Action.ADD, node("b", allocatable={"cpu": "2"}), 20.0)
    while made.schedule_one(20.0):
        pass
    assert len([write for write in made.writes if write.resource.plural == "persistentvolumeclaims"]) == 3
    assert len(made.waiting()) == 3


def test_an_ephemeral_claim_of_another_pod_is_not_taken() -> None:
    made = cluster()
    mounting = pod("p", volumes=[{"name": "v", "ephemeral": {}}])
    show(made, MADE, claim("p-v", **WANTED))
    assert "was not created for the pod" in reason(made, mounting)
    mine = {"ownerReferences": [{"uid": "uid-p", "controller": True}]}
    show(made, claim("p-v", metadata=mine, **WANTED), action=Action.UPDATE)
    assert rejected(made, mounting) == {"a": [], "b": []}


def test_older_volumes_name_their_zone_in_a_label() -> None:
    made = engine([node(name, labels={"topology.kubernetes.io/zone": name}) for name in ("x", "y", "z")], kinds=KINDS)
    labels = {"failure-domain.beta.kubernetes.io/zone": "x__y"}
    show(made, claim("c", volumeName="v"), volume("v", metadata={"labels": labels}))
    assert rejected(made, user("p", "c")) == {"x": [], "y": [], "z": ["node(s) had no available volume zone"]}


def test_only_classes_that_mount_a_claim_are_looked_at_anew() -> None:
    made = cluster()
    show(made, MADE, claim("c", **WANTED), claim("d", **WANTED))
    infos = [made.classes.info(user(name, name)) for name in ("c", "d")]
    before = [made.cycle.class_result(info) for info in infos]
    show(made, claim("c", annotations={"x": "y"}, **WANTED), action=Action.UPDATE)
    show(made, volume("other", storageClassName="s"))
    after = [made.cycle.class_result(info) for info in infos]
    assert [one is two for one, two in zip(before, after, strict=True)] == [False, True]


@given(st.data())
def test_the_index_agrees_with_a_search_through_all_volumes(data: st.DataObject) -> None:
    zones = ["x", "y", "z"]
    made = engine([node(name, labels={"zone": name}) for name in zones], kinds=KINDS)
    volumes = data.draw(
        st.lists(st.tuples(st.sampled_from(["1Gi", "2Gi", "4Gi"]), st.sets(st.sampled_from(zones))), max_size=6)
    )
    shown = [
        volume(f"v{index}", size, storageClassName="s", **({"nodeAffinity": zone(*sorted(where))} if where else {}))
        for index, (size, where) in enumerate(volumes)
    ]
    show(made, LOCAL, *shown)
    for index in sorted(data.draw(st.sets(st.integers(0, 5))), reverse=True):
        if index < len(shown):
            show(made, shown.pop(index), action=Action.DELETE)
    sizes = data.draw(st.lists(st.sampled_from(["1Gi", "2Gi", "3Gi"]), min_size=1, max_size=3))
    claims = [claim(f"c{index}", size=size, **WANTED) for index, size in enumerate(sizes)]
    show(made, *claims)
    expected = {name: [] if not smallest_volumes(claims, shown, {"zone": name}, name)[1] else [NONE] for name in zones}
    assert rejected(made, user("p", *(item.metadata.name for item in claims))) == expected


def driver(storage_capacity: bool | None) -> CsiDriver:
    return msgspec.convert({"metadata": {"name": "csi"}, "spec": {"storageCapacity": storage_capacity}}, CsiDriver)


def segment(name: str, zone_name: str | None, of_class: str = "fast", **fields: Any) -> CsiStorageCapacity:
    topology = None if zone_name is None else {"matchLabels": {"zone": zone_name} if zone_name else {}}
    metadata = {"name": name, "namespace": "kube-system"}
    document = {"metadata": metadata, "storageClassName": of_class, "nodeTopology": topology, **fields}
    return msgspec.convert(document, CsiStorageCapacity)


NO_ROOM = "node(s) did not have enough free storage"


@pytest.mark.parametrize(
    ("said", "segments", "places"),
    [
        pytest.param(None, [], "abc", id="no-driver"),
        pytest.param(False, [], "abc", id="driver-does-not-say"),
        pytest.param(True, [], "", id="nothing-said"),
        pytest.param(True, [segment("s", "a", capacity="1Gi")], "a", id="exact"),
        pytest.param(True, [segment("s", "a", capacity="1Mi")], "", id="too-little"),
        pytest.param(True, [segment("s", "a", capacity="9Gi", maximumVolumeSize="1Mi")], "", id="too-small-volumes"),
        pytest.param(True, [segment("s", "a", maximumVolumeSize="1Gi")], "a", id="largest-volume-alone"),
        pytest.param(True, [segment("s", "a")], "", id="no-amount"),
        pytest.param(True, [segment("s", "a", capacity="much")], "", id="unreadable"),
        pytest.param(True, [segment("s", "a", "slow", capacity="9Gi")], "", id="other-class"),
        pytest.param(True, [segment("s", None, capacity="9Gi")], "", id="no-topology"),
        pytest.param(True, [segment("s", "", capacity="9Gi")], "abc", id="every-node"),
        pytest.param(
            True, [segment("s", "a", capacity="1Mi"), segment("t", "b", capacity="2Gi")], "b", id="another-segment"
        ),
    ],
)
def test_volumes_are_made_where_the_driver_has_room(
    said: bool | None, segments: list[CsiStorageCapacity], places: str
) -> None:
    made = engine([node(f"n{name}", labels={"zone": name}) for name in "abc"], kinds=KINDS)
    show(made, storage("fast", provisioner="csi"), claim("data", storageClassName="fast"), *segments)
    if said is not None:
        show(made, driver(said))
    found = rejected(made, user("p", "data"))
    assert {name for name in ("na", "nb", "nc") if not found.get(name)} == {f"n{place}" for place in places}
    assert all(reasons == [NO_ROOM] for reasons in found.values() if reasons)
    # With two claims, rows are looked at one by one.
    show(made, claim("more", storageClassName="fast", size="1Mi"))
    both = rejected(made, user("q", "data", "more"))
    assert {name for name in ("na", "nb", "nc") if not both.get(name)} == {f"n{place}" for place in places}


def test_a_pod_is_placed_when_room_is_made() -> None:
    made = engine([node("n0", labels={"zone": "a"})], kinds=KINDS)
    show(made, driver(True), storage("fast", provisioner="csi"), claim("data", storageClassName="fast"))
    made.on_pod(Action.ADD, user("p", "data"), 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    assert NO_ROOM in outcome.message
    show(made, segment("s", "a", capacity="1Gi"), now=10.0)
    outcome = made.schedule_one(10.0)
    assert outcome is not None
    assert outcome.node == "n0"
    show(made, segment("s", "a", capacity="1Gi"), action=Action.DELETE)
    assert NO_ROOM in reason(made, user("q", "data"))
