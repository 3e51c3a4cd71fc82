"""The node itself: it is Ready, and runs pods of every QoS class in the kubelet's cgroups."""

from pathlib import Path

import pytest

from cluster import Document
from tests.cluster_e2e.cgroup_layout import ROOT, container_name, pod_path
from tests.cluster_e2e.conftest import Pods, container_id
from tests.cluster_e2e.node import Node
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

SLEEP = ["sleep", "3600"]
GUARANTEED = {"limits": {"cpu": "100m", "memory": "32Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}}
BURSTABLE = {"requests": {"cpu": "50m", "memory": "16Mi"}}


def test_the_node_is_ready_and_says_what_it_has(node: Node) -> None:
    status = node.object()["status"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
    assert int(status["allocatable"]["pods"]) >= 100
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")


@pytest.mark.parametrize(
    ("resources", "qos_class"),
    [
        pytest.param(GUARANTEED, "Guaranteed", id="guaranteed"),
        pytest.param(BURSTABLE, "Burstable", id="burstable"),
        pytest.param({}, "BestEffort", id="best-effort"),
    ],
)
def test_a_pod_of_each_class_runs_in_its_cgroup(pods: Pods, resources: Document, qos_class: str) -> None:
    pod = pods.run("one", SLEEP, resources)
    assert pod["status"]["qosClass"] == qos_class
    directory = pod_path(pod["metadata"]["uid"], qos_class).lstrip("/")
    below = Path(directory, container_name(container_id(pod)), "cgroup.procs")
    found = [root / below for root in (ROOT, ROOT / "cpu") if (root / below).exists()]
    assert found
    assert found[0].read_text().split()


def test_pods_reach_each_other(pods: Pods) -> None:
    server = pods.run("server", ["httpd", "-f", "-p", "8080", "-h", "/etc"])
    url = f"http://{server['status']['podIP']}:8080/passwd"
    pods.run("client", ["sh", "-c", f"until wget -q -O- {url}; do sleep 0.2; done; sleep 3600"])
    log = pods.node.directory / "pod-logs"
    wait_for(lambda: any("root:x:0:0" in path.read_text() for path in log.glob("*_client_*/main/*.log")))
