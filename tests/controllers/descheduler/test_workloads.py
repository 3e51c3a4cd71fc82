"""Workloads: Koordinator's defaults as a table, owners of owners, and what unrest is."""

from typing import Any

import msgspec
import pytest

from cluster import DeltaType, Key, StoreDelta
from controllers.descheduler.cluster_view import Cluster
from controllers.descheduler.configuration import DeschedulerConfiguration
from controllers.descheduler.cycle import Descheduler
from controllers.descheduler.kinds import POD, WorkloadObject, WorkloadSpec
from controllers.descheduler.workloads import most_at_once, unrest, workload_of
from controllers.runtime.view import ClusterCopy
from tests.descheduling import a_pod, a_workload


@pytest.mark.parametrize(
    ("stated", "replicas", "expected"),
    [
        *((None, replicas, most) for replicas, most in ((1, 1), (2, 1), (3, 1), (4, 2), (10, 2), (11, 1), (19, 1))),
        *((None, replicas, most) for replicas, most in ((20, 2), (29, 2), (100, 10))),
        (0, 5, 1),
        (3, 2, 2),
        ("10%", 5, 1),
        ("50%", 5, 2),
        ("x%", 5, 1),
        ("99999%", 5, 1),
    ],
)
def test_most_at_once(stated: int | str | None, replicas: int, expected: int) -> None:
    assert most_at_once(stated, replicas) == expected


def test_a_replica_set_is_its_deployment() -> None:
    owner = {"kind": "Deployment", "name": "shop", "uid": "uid-shop", "controller": True}
    known = {
        "uid-web": ("ReplicaSet", a_workload("web", 3, metadata={"ownerReferences": [owner]})),
        "uid-shop": ("Deployment", a_workload("shop", 7)),
    }
    found = workload_of(a_pod("p"), known)
    assert found is not None
    assert (found.uid, found.name, found.replicas) == ("uid-shop", "Deployment/shop/shop", 7)


def test_an_unknown_kind_has_no_number_and_a_bare_pod_no_workload() -> None:
    found = workload_of(a_pod("p", owner="it", kind="GameServerSet"), {})
    assert found is not None
    assert (found.name, found.replicas) == ("GameServerSet/shop/it", None)
    assert workload_of(a_pod("p", owner=""), {}) is None


def test_owners_in_a_circle_end() -> None:
    loop = [{"kind": "X", "name": "web", "uid": "uid-web", "controller": True}]
    known = {"uid-web": ("X", a_workload("web", metadata={"ownerReferences": loop}))}
    assert workload_of(a_pod("p"), known) is not None


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        pytest.param("Deployment", {}, "", id="at-rest"),
        pytest.param("Deployment", {"generation": 2}, "its controller has not seen its latest change", id="unseen"),
        pytest.param("Deployment", {"replicas_seen": 4}, "it scales from 4 to 5 pods", id="scaling"),
        pytest.param("Deployment", {"updatedReplicas": 3}, "3 of 5 pods are updated", id="rolling-out"),
        pytest.param("CloneSet", {"updatedReplicas": 3}, "", id="no-revision-differs"),
        pytest.param(
            "CloneSet",
            {"updatedReplicas": 3, "updateRevision": "b", "currentRevision": "a"},
            "3 of 5 pods are updated",
            id="kruise",
        ),
        pytest.param(
            "CloneSet",
            {
                "updatedReplicas": 3,
                "updateRevision": "b",
                "currentRevision": "a",
                "spec": {"updateStrategy": {"partition": "40%"}},
            },
            "",
            id="held-back-on-purpose",
        ),
        pytest.param(
            "CloneSet",
            {
                "updatedReplicas": 3,
                "updateRevision": "b",
                "currentRevision": "a",
                "spec": {"updateStrategy": {"paused": True}},
            },
            "",
            id="paused-by-kruise",
        ),
        pytest.param("Deployment", {"updatedReplicas": 3, "spec": {"paused": True}}, "", id="paused"),
        pytest.param("StatefulSet", {"metadata": {"deletionTimestamp": "x"}}, "it is being deleted", id="deleted"),
    ],
)
def test_unrest(kind: str, changes: dict[str, Any], expected: str) -> None:
    seen = changes.pop("replicas_seen", None)
    it = a_workload(**changes)
    if seen is not None:
        it = msgspec.structs.replace(it, status=msgspec.structs.replace(it.status, replicas=seen))
    assert isinstance(it, WorkloadObject)
    assert unrest(kind, it) == expected


def test_a_kind_that_the_configuration_names_counts_like_a_deployment() -> None:
    stated = {"apiVersion": "games.example/v1", "kind": "Fleet", "resource": "fleets"}
    configuration = msgspec.convert({"workloadKinds": [stated]}, DeschedulerConfiguration)
    fleet = configuration.workloads[-1]
    assert (fleet.path(), fleet.kind) == ("/apis/games.example/v1/fleets", "Fleet")
    it = Descheduler(configuration, [], "me")
    copy = ClusterCopy(it.watches, ())
    copy.register("it")
    scaling = a_workload("web", 2)
    for resource, each in (
        (fleet, msgspec.structs.replace(scaling, spec=WorkloadSpec(replicas=3))),
        (POD, a_pod("w0", kind="Fleet")),
    ):
        copy.apply(resource, [StoreDelta(DeltaType.ADDED, Key("shop", each.metadata.name), None, each)])
    cluster = Cluster(copy.view("it", full=True), configuration.workloads)
    found = cluster.workload(a_pod("w0", kind="Fleet"))
    assert found is not None
    assert (found.replicas, found.unrest) == (3, "it scales from 2 to 3 pods")


FARM = {
    "apiVersion": "games.example/v1",
    "kind": "Farm",
    "resource": "farms",
    "specReplicasPath": ".spec.workers.count",
    "statusReplicasPath": ".status.workers.present",
}


def farm(spec: Any, status: Any, generation: int = 1, **metadata: Any) -> Any:
    """Decode a Farm as the watch does."""
    configuration = msgspec.convert({"workloadKinds": [FARM]}, DeschedulerConfiguration)
    meta = {"name": "farm", "uid": "uid-farm", "generation": generation, **metadata}
    document = {"metadata": meta, "spec": spec, "status": status}
    return msgspec.json.decode(msgspec.json.encode(document), type=configuration.workloads[-1].model)


@pytest.mark.parametrize(
    ("spec", "status", "replicas", "unrest_is"),
    [
        pytest.param({"workers": {"count": 4}}, {"workers": {"present": 4}}, 4, "", id="at-rest"),
        pytest.param(
            {"workers": {"count": 4}, "replicas": 9},
            {"workers": {"present": 2}, "replicas": 4},
            4,
            "it scales from 2 to 4 pods",
            id="scales",
        ),
        pytest.param({"workers": {"count": 4}}, {}, 4, "it scales from no stated number to 4 pods", id="no-status"),
        pytest.param({}, {}, None, "", id="nothing-stated"),
        pytest.param({"workers": [4]}, {"workers": "4"}, None, "", id="other-forms"),
        pytest.param({"workers": {"count": True}}, {"workers": {"present": -1}}, None, "", id="no-numbers"),
        pytest.param(
            {"workers": {"count": 4}},
            {"workers": {"present": 4}, "observedGeneration": 0},
            4,
            "its controller has not seen its latest change",
            id="not-seen",
        ),
    ],
)
def test_a_kind_scales_where_its_definition_says(spec: Any, status: Any, replicas: int | None, unrest_is: str) -> None:
    owner = {"kind": "Farm", "name": "farm", "uid": "uid-farm", "controller": True}
    known = {
        "uid-web": ("ReplicaSet", a_workload("web", 3, metadata={"ownerReferences": [owner]})),
        "uid-farm": ("Farm", farm(spec, status)),
    }
    found = workload_of(a_pod("p"), known)
    assert found is not None
    assert (found.name, found.replicas, found.unrest) == ("Farm/shop/farm", replicas, unrest_is)


def test_a_scaled_kind_that_is_being_deleted() -> None:
    it = farm({"workers": {"count": 1}}, {"workers": {"present": 1}}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert unrest("Farm", it) == "it is being deleted"


@pytest.mark.parametrize("path", ["spec.replicas", ".status.replicas", ".spec", ".spec.items[0].count", ".spec..n"])
def test_a_path_that_no_definition_may_state_is_refused(path: str) -> None:
    stated = {**FARM, "specReplicasPath": path}
    with pytest.raises(msgspec.ValidationError, match="specReplicasPath"):
        msgspec.convert({"workloadKinds": [stated]}, DeschedulerConfiguration)
