"""Effective requests, and which pods share a class."""

import pytest

from api.kube.objects import Pod
from scheduler.cluster_state.podinfo import PodClasses, nonzero_requests, requests_of
from tests.schedobjects import pod

MIB = 1024 * 1024


def container(cpu: str, memory: str, **fields: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **fields}


def test_older_names_count_under_the_current_ones() -> None:
    assert requests_of(pod("p", {"koordinator.sh/batch-cpu": 500})) == {"kubernetes.io/batch-cpu": 500}


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


def test_a_class_goes_with_its_last_pod() -> None:
    classes = PodClasses(recent=4)
    kept = classes.info(pod("kept", {"cpu": "1"}))
    for number in range(20):
        classes.info(pod("p", {"cpu": "1"}, labels={"job": str(number)}))
    assert len(classes) == 5
    assert classes.info(pod("sibling", {"cpu": "1"})).cls is kept.cls


def test_placed_pods_share_a_class_with_their_pending_siblings() -> None:
    classes = PodClasses()
    placed = [classes.info(pod(name, {"cpu": "1"}, nodeName=name), placed=True).cls for name in ("a", "b")]
    assert {*placed} == {classes.info(pod("c", {"cpu": "1"})).cls}
    assert classes.info(pod("d", {"cpu": "1"}, nodeName="d")).cls not in placed
