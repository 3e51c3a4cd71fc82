"""Disks that one node may mount, and claims that one pod may use."""

from typing import Any

import msgspec
import pytest

from api.kube.storage import Claim
from cluster.resources import Key
from scheduler.framework import Action, ObjectEvent
from scheduler.matching.volumes import CLAIMS
from scheduler.plugins.volumerestrictions import VolumeRestrictions
from tests.schedobjects import engine, node, pod, rejected

KINDS = {"volumerestrictions": VolumeRestrictions}
TAKEN = "node(s) had no available disk"


def with_disk(name: str, disk: dict[str, Any], where: str = "") -> Any:
    return pod(name, volumes=[{"name": "v", **disk}], nodeName=where)


@pytest.mark.parametrize(
    ("held", "asked", "passes"),
    [
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "d"}}, False, id="gce"),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            True,
            id="readers-share",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}},
            {"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}},
            False,
            id="ebs-never-shares",
        ),
        pytest.param({"iscsi": {"iqn": "a"}}, {"iscsi": {"iqn": "b"}}, True, id="other-disk"),
        pytest.param(
            {"rbd": {"monitors": ["m"], "image": "i"}}, {"rbd": {"monitors": ["m"], "image": "i"}}, False, id="rbd"
        ),
    ],
)
def test_disks(held: dict[str, Any], asked: dict[str, Any], passes: bool) -> None:
    made = engine([node("a"), node("b")], [with_disk("x", held, "a")], kinds=KINDS)
    assert rejected(made, with_disk("p", asked)) == {"a": [] if passes else [TAKEN], "b": []}
    made.snapshot.remove_pod("uid-x")
    assert rejected(made, with_disk("p", asked)) == {"a": [], "b": []}


def test_a_claim_for_one_pod_alone() -> None:
    def user(name: str, where: str = "") -> Any:
        return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], nodeName=where)

    document = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOncePod"]}}
    made = engine([node("a")], [user("x", "a")], kinds=KINDS)
    key = Key("default", "c")
    made.on_object(ObjectEvent(CLAIMS, Action.ADD, key, None, msgspec.convert(document, Claim)), 0.0)
    made.on_pod(Action.ADD, user("p"), 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    assert "ReadWriteOncePod" in outcome.message
    made.on_pod(Action.DELETE, user("x", "a"), 5.0)
    made.schedule_one(5.0)
    assert len(made.bindings) == 1
