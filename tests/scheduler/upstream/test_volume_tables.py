"""The stock scheduler's tables of volumes, row by row: each passes, or says why it differs."""

from typing import Any

import msgspec
import pytest

from api.kube.objects import Pod
from api.kube.storage import (
    Claim,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    StorageClass,
    VolumeAttachment,
)
from cluster.resources import Key, Resource
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.matching.volumes import ATTACHMENTS, CAPACITIES, CLAIMS, CLASSES, DRIVERS, NODE_DRIVERS, VOLUMES
from scheduler.plugins.nodevolumelimits import NodeVolumeLimits
from scheduler.plugins.volumebinding import VolumeBinding
from scheduler.plugins.volumerestrictions import VolumeRestrictions
from tests.schedobjects import engine, node, pod, rejected
from tests.scheduler.upstream.reading import table

TABLES = table("volumes")
REASONS = {
    "": [],
    "none": ["node(s) didn't find available persistent volumes to bind"],
    "far": ["node(s) didn't match PersistentVolume's node affinity"],
    "full": ["node(s) did not have enough free storage"],
}
KINDS: dict[Any, Resource[Any]] = {
    Claim: CLAIMS,
    PersistentVolume: VOLUMES,
    StorageClass: CLASSES,
    CsiDriver: DRIVERS,
    CsiNode: NODE_DRIVERS,
    CsiStorageCapacity: CAPACITIES,
    VolumeAttachment: ATTACHMENTS,
}
AMAZON, GOOGLE, OWN_KIND, HOST = "ebs.csi.aws.com", "pd.csi.storage.gke.io", "kubernetes.io/aws-ebs", "hostpath"
CLASSES_OF_ROWS = {
    "wait": {"provisioner": "kubernetes.io/no-provisioner"},
    "hdd": {"provisioner": "kubernetes.io/no-provisioner"},
    "immediate": {"volumeBindingMode": "Immediate"},
    "made": {"provisioner": "driver", "allowedTopologies": ["node1"]},
    "far": {"provisioner": "driver", "allowedTopologies": ["elsewhere"]},
    "roomy": {"provisioner": "roomy-driver"},
}


def show(made: Engine, model: Any, document: dict[str, Any]) -> None:
    item = msgspec.convert(document, model)
    key = Key(item.metadata.namespace, item.metadata.name)
    made.on_object(ObjectEvent(KINDS[model], Action.ADD, key, None, item), 0.0)


def show_claim(made: Engine, name: str, case: dict[str, Any]) -> None:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if "volume" in case else {}
    annotations |= {"volume.kubernetes.io/selected-node": case["selected"]} if "selected" in case else {}
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
    if "owner" in case:
        metadata["ownerReferences"] = [{"controller": True, "kind": "Pod", "name": "p", "uid": case["owner"]}]
    spec = {
        "storageClassName": case.get("class", ""),
        "volumeName": case.get("volume", case.get("prebound", "")),
        "resources": {"requests": {"storage": case.get("size", "1Gi")}},
    }
    show(made, Claim, {"metadata": metadata, "spec": spec, "status": {"phase": case.get("phase", "")}})


def show_volume(made: Engine, name: str, case: dict[str, Any]) -> None:
    nodes = case.get("nodes", {})
    wanted = nodes if isinstance(nodes, dict) else {"nodeKey": nodes}
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": each} for key, each in wanted.items()]}]
    spec: dict[str, Any] = {
        "storageClassName": case.get("class", "wait"),
        "capacity": {"storage": case.get("size", "1Gi")},
    }
    spec |= {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if wanted else {}
    spec |= {"claimRef": {"namespace": "default", "name": case["for"], "uid": case["for"]}} if "for" in case else {}
    show(made, PersistentVolume, {"metadata": {"name": name, "labels": case.get("labels", {})}, "spec": spec})


def show_segment(made: Engine, index: int, case: list[Any]) -> None:
    name, labels, capacity, *largest = case
    document = {"metadata": {"name": f"s{index}", "namespace": "default"}, "storageClassName": name}
    document |= {"nodeTopology": {"matchLabels": labels}} | ({"capacity": capacity} if capacity else {})
    document |= {"maximumVolumeSize": largest[0]} if largest and largest[0] else {}
    show(made, CsiStorageCapacity, document)


def show_classes(made: Engine, driver: bool | None = None) -> None:
    for name, case in CLASSES_OF_ROWS.items():
        document = {"metadata": {"name": name}, "volumeBindingMode": "WaitForFirstConsumer", **case}
        if "allowedTopologies" in case:
            labels = [{"key": "nodeKey", "values": case["allowedTopologies"]}]
            document["allowedTopologies"] = [{"matchLabelExpressions": labels}]
        show(made, StorageClass, document)
    show(made, CsiDriver, {"metadata": {"name": "roomy-driver"}, "spec": {"storageCapacity": True}})
    if driver is not None:
        show(made, CsiDriver, {"metadata": {"name": "driver"}, "spec": {"storageCapacity": driver}})


def asking(case: dict[str, Any]) -> Pod:
    volumes: list[dict[str, Any]] = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}}
        for index, name in enumerate(case.get("asks", () if "ephemeral" in case else case["claims"]))
    ]
    volumes += [{"name": name, "ephemeral": {}} for name in case.get("ephemeral", ())]
    return pod("p", volumes=volumes)


def binding_engine(case: dict[str, Any], driver: bool | None = None) -> Engine:
    nodes = case.get("nodes", {"node1": {"nodeKey": "node1"}})
    made = engine([node(name, labels=labels) for name, labels in nodes.items()], kinds={"volumebinding": VolumeBinding})
    show_classes(made, driver)
    for name, each in case["claims"].items():
        show_claim(made, name, each)
    for name, each in case.get("volumes", {}).items():
        show_volume(made, name, each)
    for index, segment in enumerate(case.get("room", ())):
        show_segment(made, index, segment)
    return made


def refusal(made: Engine, candidate: Pod) -> str:
    made.on_pod(Action.ADD, candidate, 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    return outcome.message


@pytest.mark.parametrize("row", range(len(TABLES["binding"])))
def test_binding(row: int) -> None:
    case = TABLES["binding"][row]
    made = binding_engine(case)
    if "refused" in case:
        assert case["refused"] in refusal(made, asking(case))
    else:
        assert rejected(made, asking(case)) == {name: REASONS[why] for name, why in case["against"].items()}


@pytest.mark.parametrize("driver", [None, False, True])
@pytest.mark.parametrize("row", range(len(TABLES["finding"])))
def test_finding(row: int, driver: bool | None) -> None:
    case = TABLES["finding"][row]
    made = binding_engine(case, driver)
    against = case.get("without_room", "") if driver else case.get("against", "")
    if "refused" in case:
        assert case["refused"] in refusal(made, asking(case))
        return
    assert rejected(made, asking(case)) == {"node1": REASONS[against or case.get("against", "")]}
    if against or "against" in case:
        return
    refusal(made, asking(case))
    bodies: list[tuple[str, str, Any]] = [
        (write.resource.plural, write.key.name, getattr(write.body, "body", None)) for write in made.writes
    ]
    binds = {body["spec"]["claimRef"]["name"]: name for plural, name, body in bodies if plural == "persistentvolumes"}
    makes = [name for plural, name, _ in bodies if plural == "persistentvolumeclaims"]
    assert (binds, makes) == (case.get("binds", {}), case.get("makes", []))


@pytest.mark.parametrize("driver", [True, False])
@pytest.mark.parametrize("row", range(len(TABLES["room"])))
def test_room(row: int, driver: bool) -> None:
    case = TABLES["room"][row]
    made = binding_engine({"claims": {"m": {"class": "made"}}, "room": case["segments"]}, driver)
    fits = case["fits"] or not driver
    assert rejected(made, asking({"claims": {"m": {}}})) == {"node1": REASONS["" if fits else "full"]}


@pytest.mark.parametrize("row", range(len(TABLES["zones"])))
def test_zones(row: int) -> None:
    case = TABLES["zones"][row]
    beta, stable = "failure-domain.beta.kubernetes.io/", "topology.kubernetes.io/"
    spelled = {"bz": beta + "zone", "br": beta + "region", "z": stable + "zone", "r": stable + "region"}
    labels = [{spelled.get(key, key): value for key, value in case[part].items()} for part in ("volume", "node")]
    made = engine([node("n0", labels=labels[1])], kinds={"volumebinding": VolumeBinding})
    show_claim(made, "c", {"volume": "v"})
    show_volume(made, "v", {"labels": labels[0]})
    reasons = [] if case["fits"] else ["node(s) had no available volume zone"]
    assert rejected(made, asking({"claims": ["c"]})) == {"n0": reasons}


def limits_pod(name: str, claims: list[str], where: str = "", ephemeral: tuple[str, ...] = ()) -> Pod:
    volumes: list[dict[str, Any]] = []
    for claim in claims:
        if claim.startswith("inline"):
            volume_id = claim.removeprefix("inline-") if "-" in claim else claim
            volumes.append({"name": claim, "awsElasticBlockStore": {"volumeID": volume_id}})
        else:
            volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
    volumes += [{"name": each, "ephemeral": {}} for each in ephemeral]
    return pod(name, volumes=[*volumes, {"name": "plain", "secret": {}}], nodeName=where)


def show_limits(made: Engine, case: dict[str, Any]) -> None:
    sources = {"e": AMAZON, "g": GOOGLE, "t": OWN_KIND, "h": HOST}
    for letter, driver in sources.items():
        for index in range(4):
            name = f"{letter}{index}"
            source: dict[str, Any] = {"csi": {"driver": driver, "volumeHandle": name}}
            source = {"awsElasticBlockStore": {"volumeID": name}} if driver == OWN_KIND else source
            source = {"hostPath": {"path": "/tmp"}} if driver == HOST else source
            show(made, PersistentVolume, {"metadata": {"name": name}, "spec": source})
            show_claim(made, name, {"volume": name})
    for name in ("w4", "w7", "w8", "p-x"):
        show_claim(made, name, {"class": "some", "owner": "uid-p"})
    show_claim(made, "n5", {})
    show_claim(made, "m6", {"class": "some", "volume": "missing"})
    own = OWN_KIND if case.get("migrated") else AMAZON
    show(made, StorageClass, {"metadata": {"name": "some"}, "provisioner": own})
    if "driver" in case:
        spec = {"preventPodSchedulingIfMissing": True} if case["driver"].get("needed") else {}
        show(made, CsiDriver, {"metadata": {"name": AMAZON}, "spec": spec})
    listed = [] if case.get("node") == "bare" else [AMAZON, GOOGLE, OWN_KIND, HOST]
    limit = {"allocatable": {"count": case["most"]}} if "most" in case else {}
    meta: dict[str, Any] = {"name": "n0"}
    if case.get("migrated"):
        meta["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": OWN_KIND}
    if case.get("node") != "absent":
        show(made, CsiNode, {"metadata": meta, "spec": {"drivers": [{"name": each, **limit} for each in listed]}})
    for index in case.get("attached", ()):
        spec = {"attacher": AMAZON, "nodeName": "n0", "source": {"persistentVolumeName": f"e{index}"}}
        show(made, VolumeAttachment, {"metadata": {"name": f"a{index}"}, "spec": spec})


@pytest.mark.parametrize("row", range(len(TABLES["limits"])))
def test_limits(row: int) -> None:
    case = TABLES["limits"][row]
    placed = [limits_pod(f"q{index}", each, "n0") for index, each in enumerate(case.get("placed", ()))]
    made = engine([node("n0")], placed, kinds={"limits": NodeVolumeLimits})
    show_limits(made, case)
    reasons = rejected(made, limits_pod("p", case["asks"], ephemeral=tuple(case.get("ephemeral", ()))))["n0"]
    assert (not reasons) is (case["fits"] or "differs" in case), reasons


@pytest.mark.parametrize("row", range(len(TABLES["restrictions"])))
def test_restrictions(row: int) -> None:
    case = TABLES["restrictions"][row]
    if "claims" not in case:
        old = [pod("old", volumes=[{"name": "v", **case["placed"]}], nodeName="n0")]
        made = engine([node("n0")], old, kinds={"restrictions": VolumeRestrictions})
        reasons = rejected(made, pod("p", volumes=[{"name": "v", **case["asks"]}]))["n0"]
        assert reasons == ([] if case["fits"] else ["node(s) had no available disk"])
        return
    old = [limits_pod(f"q{index}", claims, "n0") for index, claims in enumerate(case["users"])]
    made = engine([node("n0")], old, kinds={"restrictions": VolumeRestrictions})
    for name, mode in (("one", "ReadWriteOncePod"), ("two", "ReadWriteOncePod"), ("many", "ReadWriteMany")):
        metadata = {"name": name, "namespace": "default", "uid": name}
        show(made, Claim, {"metadata": metadata, "spec": {"accessModes": [mode]}})
    attempt = made.cycle.attempt(made.classes.info(limits_pod("p", case["claims"])), 0.0)
    failure = made.cycle.evaluate(attempt).failure
    assert failure.resolvable_rows(made.snapshot).size == (0 if case["fits"] else 1)
