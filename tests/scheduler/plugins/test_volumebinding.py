"""Pods go where their volumes can, and claims are settled before the pod is bound."""

from typing import Any

import msgspec
import pytest

from api.kube.storage import Claim, PersistentVolume, StorageClass
from api.placement import PlacementRequest, SimulatedPod
from cluster.resources import Key, Resource
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.matching.volumes import CLAIMS, CLASSES, VOLUMES, smallest_volumes
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
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
    size = {"requests": {"storage": spec.pop("size", "1Gi")}}
    return msgspec.convert({"metadata": metadata, "spec": {"resources": size, **spec}}, Claim)


def volume(name: str, size: str = "1Gi", **spec: Any) -> PersistentVolume:
    document = {"metadata": {"name": name}, "spec": {"capacity": {"storage": size}, **spec}}
    return msgspec.convert(document, PersistentVolume)


def storage(name: str, mode: str = "WaitForFirstConsumer", **fields: Any) -> StorageClass:
    document = {"metadata": {"name": name}, "volumeBindingMode": mode, **fields}
    return msgspec.convert(document, StorageClass)


def show(made: Engine, *objects: Any, action: Action = Action.ADD, now: float = 0.0) -> None:
    kinds: dict[type, Resource[Any]] = {Claim: CLAIMS, PersistentVolume: VOLUMES, StorageClass: CLASSES}
    for item in objects:
        key = Key(item.metadata.namespace, item.metadata.name)
        made.on_object(ObjectEvent(kinds[type(item)], action, key, None, item), now)


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
