"""Facts of pods from their documents: class, owner, amounts, containers, hostile input."""

import json
from typing import Any

import pytest

from api.qos import QoSClass
from koordlet.identity.pods import ContainerRole
from koordlet.kubelet.pod_documents import NodePod, NotAPodList, pods_of_list
from koordlet.kubelet.pod_facts import DescribedPod, describe
from tests.koordlet.kubelet.recordings import pods, recorded


def described(**given: Any) -> DescribedPod:
    meta = {"name": "web-1", "namespace": "shop", "uid": "u", **given.pop("metadata", {})}
    body = json.dumps({"items": [{"metadata": meta, **given}]}).encode()
    (pod,) = pods_of_list(body).pods
    return describe(pod)


def container(name: str, **resources: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "image": "busybox", "resources": resources}


def test_every_recorded_pod_is_described_without_a_problem() -> None:
    listed = pods_of_list(recorded("pods.json"))
    found = [describe(pod) for pod in listed.pods]
    assert len(found) == 7
    assert not [each.problem for each in found if each.problem]
    assert not listed.problems


def facts(name: str, of: tuple[NodePod, ...] | None = None) -> Any:
    found = [describe(pod, by_kubelet=of is None).facts for pod in of or pods()]
    return next(each for each in found if each.name.split("/")[1].startswith(name))


@pytest.mark.parametrize(
    ("name", "qos", "kube_qos", "workload"),
    [
        pytest.param("web", QoSClass.LS, "Burstable", "default/web", id="labelled"),
        pytest.param("pinned", QoSClass.NONE, "Guaranteed", "default/pinned", id="unlabelled"),
        pytest.param("batch", QoSClass.BE, "BestEffort", "Deployment/default/batch", id="deployment"),
        pytest.param("critical", QoSClass.SYSTEM, "BestEffort", "kube-system/critical", id="node-critical"),
        pytest.param("etcd", QoSClass.SYSTEM, "Burstable", "kube-system/etcd-node-0", id="static"),
    ],
)
def test_class_and_owner(name: str, qos: QoSClass, kube_qos: str, workload: str) -> None:
    found = facts(name)
    assert (found.qos, found.kube_qos, found.workload) == (qos, kube_qos, workload)


def test_a_static_pod_and_its_mirror_have_one_uid_in_cgroups() -> None:
    static, mirror = facts("etcd"), facts("etcd", pods_of_list(recorded("api_pods.json")).pods)
    assert static.static
    assert mirror.static
    assert static.cgroup_uid == mirror.cgroup_uid == "029829d3053739b0e5857a527e4b1c97"
    assert mirror.uid != mirror.cgroup_uid
    assert mirror.qos is QoSClass.SYSTEM


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"kubernetes.io/config.source": "file"}, id="source"),
        pytest.param(
            {"kubernetes.io/config.mirror": "uid-of-another", "kubernetes.io/config.hash": "uid-of-another"}, id="uid"
        ),
        pytest.param({"kubernetes.io/config.mirror": "a" * 32, "kubernetes.io/config.hash": "b" * 32}, id="two-hashes"),
    ],
)
def test_annotations_that_anybody_writes_make_no_static_pod(annotations: dict[str, str]) -> None:
    document = {"metadata": {"name": "x", "namespace": "y", "uid": "u", "annotations": annotations}}
    (pod,) = pods_of_list(json.dumps({"items": [document]}).encode()).pods
    found = describe(pod, by_kubelet=False).facts
    assert (found.static, found.qos, found.cgroup_uid) == (False, QoSClass.NONE, "u")


def test_roles_of_the_recorded_containers() -> None:
    roles = {each.name.split("-")[0]: each.role for each in facts("web").containers}
    assert roles == {
        "server": ContainerRole.APP,
        "prepare": ContainerRole.INIT,
        "proxy": ContainerRole.SIDECAR,
        "debugger": ContainerRole.EPHEMERAL,
    }


def test_finished_and_terminating_pods_are_not_active() -> None:
    assert facts("web").active
    assert not facts("finished").active
    assert not described(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}).facts.active


def test_requests_are_the_schedulers_and_limits_those_of_every_container() -> None:
    found = described(
        spec={
            "initContainers": [
                {**container("proxy", requests={"cpu": "50m"}, limits={"cpu": "1"}), "restartPolicy": "Always"},
                container("prepare", requests={"cpu": "2", "memory": "1Gi"}),
            ],
            "containers": [
                container("server", requests={"cpu": "100m"}, limits={"cpu": "500m", "memory": "64Mi"}),
                container("other", limits={"cpu": "1"}),
            ],
            "overhead": {"cpu": "10m"},
        }
    ).facts
    assert found.requests == {"cpu": 2060, "memory": 1 << 30}
    assert found.limits == {"cpu": 2510}
    assert found.kube_qos == "Burstable"


def test_resources_of_the_whole_pod_replace_the_sums() -> None:
    spec = {"containers": [container("a", requests={"cpu": "1"})], "resources": {"limits": {"cpu": "2"}}}
    assert described(spec=spec).facts.limits == {"cpu": 2000}
    assert described(spec=spec).facts.requests == {"cpu": 2000}


def test_batch_amounts_are_counted_by_their_names() -> None:
    amounts = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    found = described(spec={"containers": [container("a", requests=amounts, limits=amounts)]}).facts
    assert found.limits == {"kubernetes.io/batch-cpu": 1500, "kubernetes.io/batch-memory": 1 << 30}
    assert found.kube_qos == "BestEffort"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed", id="limits-only"),
        pytest.param({"limits": {"cpu": "1"}}, "Burstable", id="no-memory"),
        pytest.param({}, "BestEffort", id="nothing"),
    ],
)
def test_kubernetes_class_where_the_status_lacks_it(resources: dict[str, dict[str, str]], expected: str) -> None:
    assert described(spec={"containers": [container("a", **resources)]}).facts.kube_qos == expected


def test_a_malformed_quantity_costs_this_pods_amounts_only() -> None:
    found = described(
        metadata={"labels": {"koordinator.sh/qosClass": "LS"}},
        spec={"containers": [container("a", requests={"cpu": "a lot"})]},
        status={"qosClass": "Burstable"},
    )
    assert "'a lot'" in found.problem
    assert "shop/web-1" in found.problem
    assert found.facts.requests == {}
    assert found.facts.qos is QoSClass.LS
    assert found.facts.kube_qos == "Burstable"
    assert [each.name for each in found.facts.containers] == ["a"]


def test_a_label_that_names_no_class_is_a_problem_and_no_class() -> None:
    found = described(metadata={"labels": {"koordinator.sh/qosClass": "GOLD\x1b[2J"}})
    assert found.facts.qos is QoSClass.NONE
    assert "'GOLD\\x1b[2J'" in found.problem


def test_one_malformed_pod_hides_no_other() -> None:
    body = b"""{"items": [{"metadata": {"name": "a", "namespace": "x", "uid": "1", "labels": null}},
        {"metadata": {"name": "b", "namespace": "x"}, "spec": {"containers": 7}},
        [], {"metadata": {"name": "c", "namespace": "x", "uid": "3"}, "status": {"containerStatuses": null}}]}"""
    listed = pods_of_list(body)
    assert [pod.metadata.name for pod in listed.pods] == ["a", "c"]
    assert [problem.split(" is not")[0] for problem in listed.problems] == ["pod 'x/b'", "pod without a name"]


@pytest.mark.parametrize("text", ["", "<html>", "[]", '{"items": 3}'])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(NotAPodList):
        pods_of_list(text.encode())


def test_an_empty_list_may_be_null() -> None:
    assert pods_of_list(b'{"items": null}').pods == ()
