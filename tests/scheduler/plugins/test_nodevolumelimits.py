"""A node attaches only so many volumes of a driver."""

from typing import Any

import msgspec

from api.kube.storage import Claim, CsiNode, PersistentVolume
from cluster.resources import Key, Resource
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.matching.attachments import MIGRATED
from scheduler.matching.volumes import CLAIMS, NODE_DRIVERS, VOLUMES
from scheduler.plugins.nodevolumelimits import NodeVolumeLimits
from tests.schedobjects import engine, node, pod, rejected

DRIVER = "csi.example.com"


def user(name: str, claim: str, where: str = "") -> Any:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}], nodeName=where)


def show(made: Engine, kind: Resource[Any], key: Key, value: Any) -> None:
    made.on_object(ObjectEvent(kind, Action.UPDATE, key, None, value), 0.0)


def test_the_limit_counts_distinct_volumes() -> None:
    made = engine([node("a"), node("b")], [user("x", "c0", "a")], kinds={"limits": NodeVolumeLimits})
    for index in range(3):
        claim = {"metadata": {"name": f"c{index}", "namespace": "default"}, "spec": {"volumeName": f"v{index}"}}
        source = {"driver": DRIVER, "volumeHandle": f"h{index}"}
        volume = {"metadata": {"name": f"v{index}"}, "spec": {"csi": source}}
        key = Key("default", f"c{index}")
        made.on_object(ObjectEvent(CLAIMS, Action.ADD, key, None, msgspec.convert(claim, Claim)), 0.0)
        made.on_object(
            ObjectEvent(VOLUMES, Action.ADD, Key("", f"v{index}"), None, msgspec.convert(volume, PersistentVolume)),
            0.0,
        )
    drivers = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": 1}}]}}
    made.on_object(ObjectEvent(NODE_DRIVERS, Action.ADD, Key("", "a"), None, msgspec.convert(drivers, CsiNode)), 0.0)
    assert rejected(made, user("p", "c1")) == {"a": ["node(s) exceed max volume count"], "b": []}
    assert rejected(made, user("q", "c0")) == {"a": [], "b": []}
    made.snapshot.remove_pod("uid-x")
    assert rejected(made, user("p", "c1")) == {"a": [], "b": []}


def test_limits_are_those_that_the_node_states_now() -> None:
    made = engine([node("a")], [user("x", "c0", "a")], kinds={"limits": NodeVolumeLimits})
    for name in ("c0", "c1"):
        claim = {"metadata": {"name": name, "namespace": "default"}, "spec": {"volumeName": name}}
        volume = {"metadata": {"name": name}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": name}}}
        show(made, CLAIMS, Key("default", name), msgspec.convert(claim, Claim))
        show(made, VOLUMES, Key("", name), msgspec.convert(volume, PersistentVolume))
    refused = {"a": ["node(s) exceed max volume count"]}
    for count, answer in ((1, refused), (2, {"a": []}), (1, refused)):
        stated = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": count}}]}}
        show(made, NODE_DRIVERS, Key("", "a"), msgspec.convert(stated, CsiNode))
        assert rejected(made, user("p", "c1")) == answer
    made.on_object(ObjectEvent(NODE_DRIVERS, Action.DELETE, Key("", "a"), None, None), 0.0)
    assert rejected(made, user("p", "c1")) == {"a": []}


def azure(group: str) -> dict[str, Any]:
    return {"diskName": "data", "diskURI": f"/subscriptions/s/resourceGroups/{group}/disks/data"}


def test_inline_disks_of_a_migrated_kind_are_told_apart_by_their_whole_address() -> None:
    inline = pod("x", volumes=[{"name": "v", "azureDisk": azure("one")}], nodeName="a")
    made = engine([node("a")], [inline], kinds={"limits": NodeVolumeLimits})
    drivers = [{"name": "disk.csi.azure.com", "allocatable": {"count": 1}}]
    stated: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"drivers": drivers}}
    same = {"driver": "disk.csi.azure.com", "volumeHandle": azure("one")["diskURI"]}
    claim = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"volumeName": "v"}}
    volume = {"metadata": {"name": "v"}, "spec": {"csi": same}}
    show(made, CLAIMS, Key("default", "c"), msgspec.convert(claim, Claim))
    show(made, VOLUMES, Key("", "v"), msgspec.convert(volume, PersistentVolume))
    other = pod("p", volumes=[{"name": "v", "azureDisk": azure("two")}])
    show(made, NODE_DRIVERS, Key("", "a"), msgspec.convert(stated, CsiNode))
    assert rejected(made, other) == {"a": []}
    stated["metadata"]["annotations"] = {MIGRATED: "kubernetes.io/azure-disk"}
    show(made, NODE_DRIVERS, Key("", "a"), msgspec.convert(stated, CsiNode))
    assert rejected(made, other) == {"a": ["node(s) exceed max volume count"]}
    assert rejected(made, user("q", "c")) == {"a": []}
