"""Pods and containers as the runtime tells of them."""

import pytest

from api.qos import QoSClass
from koordlet.identity.pods import NO_PODS, PodContainer, PodFacts, PodTable
from koordlet.nri.nri_pb2 import Container, PodSandbox
from koordlet.nri.sandbox import container_of, container_path, pod_of, pod_path
from tests.koordlet.nri.runtime import container, sandbox


@pytest.mark.parametrize(
    ("parent", "path", "kube_qos"),
    [
        pytest.param("/kubepods/besteffort/podu1", "/kubepods/besteffort/podu1", "BestEffort", id="cgroupfs"),
        pytest.param("/kubepods/podu1", "/kubepods/podu1", "Guaranteed", id="guaranteed"),
        pytest.param(
            "kubepods-burstable-podu1_2.slice",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1_2.slice",
            "Burstable",
            id="systemd",
        ),
        pytest.param("/kubelet/kubepods/burstable/podu1", "/kubelet/kubepods/burstable/podu1", "Burstable", id="root"),
        pytest.param("", "", "", id="unknown"),
    ],
)
def test_the_cgroup_says_the_kubernetes_class(parent: str, path: str, kube_qos: str) -> None:
    told = sandbox(parent=parent)
    assert pod_path(told) == path
    assert pod_of(told, NO_PODS).kube_qos == kube_qos


@pytest.mark.parametrize(
    ("told", "path"),
    [
        pytest.param("/kubepods/podu1/c1", "/kubepods/podu1/c1", id="cgroupfs"),
        pytest.param(
            "kubepods-podu1.slice:cri-containerd:c1",
            "/kubepods.slice/kubepods-podu1.slice/cri-containerd-c1.scope",
            id="systemd",
        ),
    ],
)
def test_container_paths(told: str, path: str) -> None:
    assert container_path(container(path=told)) == path


def test_a_pod_that_no_source_knows_yet() -> None:
    found = pod_of(sandbox(annotations={"a": "b"}), NO_PODS)
    assert (found.name, found.qos, found.uid, found.annotations) == ("default/web", QoSClass.BE, "u1", {"a": "b"})


@pytest.mark.parametrize(
    ("told", "qos"),
    [
        pytest.param(sandbox(qos="LS"), QoSClass.LS, id="label"),
        pytest.param(sandbox(qos="SYSTEM"), QoSClass.NONE, id="label-that-takes-a-priority"),
        pytest.param(sandbox(qos="best"), QoSClass.NONE, id="no-class"),
        pytest.param(sandbox(annotations={"kubernetes.io/config.source": "file"}), QoSClass.SYSTEM, id="static"),
        pytest.param(sandbox(annotations={"kubernetes.io/config.source": "api"}), QoSClass.BE, id="by-api"),
        pytest.param(PodSandbox(), QoSClass.NONE, id="empty"),
    ],
)
def test_classes(told: PodSandbox, qos: QoSClass) -> None:
    assert pod_of(told, NO_PODS).qos is qos


def test_the_table_knows_more() -> None:
    main = PodContainer("main", requests={"cpu": 5})
    table = PodTable([PodFacts("default/web", QoSClass.LS, uid="u1", priority=9500, containers=(main,))])
    found = pod_of(sandbox(annotations={"a": "b"}), table)
    assert (found.qos, found.priority, found.annotations) == (QoSClass.LS, 9500, {"a": "b"})
    assert container_of(container(), found) is main


def test_limits_of_a_container_that_no_source_knows_yet() -> None:
    told = Container(id="c1", name="main")
    told.linux.resources.cpu.quota.value = 150_000
    told.linux.resources.cpu.period.value = 100_000
    told.linux.resources.memory.limit.value = 7
    assert container_of(told, pod_of(sandbox(), NO_PODS)).limits == {"cpu": 1500, "memory": 7}
    assert container_of(Container(name="x"), pod_of(sandbox(), NO_PODS)).limits == {}
