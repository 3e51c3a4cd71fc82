"""Effective requests, and which pods share a class."""

import pytest

from api.kube.objects import Pod
from scheduler.cluster_state.podinfo import PodClasses, effective_requests, nonzero_requests
from tests.schedobjects import pod

MIB = 1024 * 1024


def container(cpu: str, memory: str, **fields: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **fields}


@pytest.mark.parametrize(
    ("candidate", "cpu", "memory"),
    [
        pytest.param(pod("p", {"cpu": "1", "memory": "1Mi"}), 1000, MIB, id="one-container"),
        pytest.param(pod("p", containers=[container("1", "1Mi"), container("500m", "2Mi")]), 1500, 3 * MIB, id="sum"),
        pytest.param(
            pod("p", {"cpu": "1", "memory": "1Mi"}, initContainers=[container("3", "1Mi")]),
            3000,
            MIB,
            id="init-peak",
        ),
        pytest.param(
            pod(
                "p",
                {"cpu": "1", "memory": "1Mi"},
                initContainers=[container("1", "1Mi", restartPolicy="Always"), container("3", "1Mi")],
            ),
            4000,
            2 * MIB,
            id="sidecar-beside-init-and-main",
        ),
        pytest.param(pod("p", {"cpu": "1", "memory": "1Mi"}, overhead={"cpu": "250m"}), 1250, MIB, id="overhead"),
        pytest.param(
            pod("p", {"cpu": "1", "memory": "1Mi"}, resources={"requests": {"cpu": "2"}}),
            2000,
            MIB,
            id="pod-level",
        ),
        pytest.param(
            pod("p", container={"resources": {"limits": {"cpu": "2", "memory": "1Mi"}}}),
            2000,
            MIB,
            id="limit-is-request",
        ),
    ],
)
def test_effective_requests(candidate: Pod, cpu: int, memory: int) -> None:
    assert effective_requests(candidate) == {"cpu": cpu, "memory": memory}


def test_older_names_count_under_the_current_ones() -> None:
    assert effective_requests(pod("p", {"koordinator.sh/batch-cpu": 500})) == {"kubernetes.io/batch-cpu": 500}


def test_containers_without_requests_count_with_defaults_in_scores() -> None:
    two = pod("p", containers=[{"name": "a"}, container("1", "1Mi")])
    assert nonzero_requests(two) == (1100, 201 * MIB)


def test_members_of_one_workload_share_a_class() -> None:
    classes = PodClasses()
    labels = {"app": "web", "apps.kubernetes.io/pod-index": "0"}
    first = classes.info(pod("web-0", {"cpu": "1"}, labels=labels))
    other = classes.info(pod("web-1", {"cpu": "1"}, labels=labels | {"apps.kubernetes.io/pod-index": "1"}))
    assert first.cls is other.cls
    assert first.uid != other.uid


@pytest.mark.parametrize(
    "different",
    [
        pytest.param(pod("q", {"cpu": "2"}, labels={"app": "web"}), id="request"),
        pytest.param(pod("q", {"cpu": "1"}, labels={"app": "db"}), id="label"),
        pytest.param(pod("q", {"cpu": "1"}, labels={"app": "web"}, namespace="other"), id="namespace"),
        pytest.param(pod("q", {"cpu": "1"}, labels={"app": "web"}, priority=10), id="priority"),
        pytest.param(pod("q", {"cpu": "1"}, labels={"app": "web"}, nodeSelector={"a": "b"}), id="node-selector"),
        pytest.param(
            pod("q", {"cpu": "1"}, labels={"app": "web"}, annotations={"scheduling.koordinator.sh/x": "y"}),
            id="annotation",
        ),
        pytest.param(
            pod("q", {"cpu": "1"}, labels={"app": "web"}, owner={"kind": "ReplicaSet", "name": "r", "uid": "u"}),
            id="owner",
        ),
    ],
)
def test_what_can_matter_to_placement_makes_another_class(different: Pod) -> None:
    classes = PodClasses()
    assert classes.info(pod("p", {"cpu": "1"}, labels={"app": "web"})).cls is not classes.info(different).cls
