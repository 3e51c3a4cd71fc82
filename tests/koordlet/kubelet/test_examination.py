"""The doctor's lines about the cluster."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cluster import NODES
from cluster.twin import Twin
from koordlet.host.files import HostTree
from koordlet.identity.pods import NO_PODS
from koordlet.kubelet import examination
from koordlet.kubelet.assembly import Sources, assemble
from koordlet.kubelet.examination import Examined, examine_cluster
from koordlet.kubelet.settings import KubeletSettings
from koordlet.kubelet.watch import PACE, ApiServer
from tests.koordlet.kubelet.recordings import config, document, places, pods, view
from tests.koordlet.kubelet.servers import KubeletServer, RuntimeServer


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Twin]:
    with Twin() as running:
        running.load(NODES, [document("node.json")])
        monkeypatch.setattr(examination, "find_apiserver", lambda _file, node: ApiServer(running.client(PACE), node))
        yield running


def lines(settings: KubeletSettings, root: Path, node: str = "node-0") -> dict[str, Examined]:
    return {each.name: each for each in examine_cluster(settings, HostTree(root), node=node, kubeconfig="")}


def test_everything_answers(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer, kubelet: KubeletServer, twin: Twin
) -> None:
    for facts in assemble(Sources(pods=pods(), view=view(), config=config(), places=places()), NO_PODS).pods:
        for each in facts.containers:
            if each.running:
                (root / f"sys/fs/cgroup/cpu{each.cgroup_path}").mkdir(parents=True, exist_ok=True)
    found = lines(settings, root)
    assert {name: each.reason for name, each in found.items() if not each.available} == {}
    assert found["kubelet"].reason == f"7 pods from {kubelet.url}"
    assert found["api server"].reason.startswith("knows node node-0, kubelet at https://10.244.0.1:")
    assert found["configz"].reason == "CPU manager static, memory manager None, MemoryQoS off"
    assert "containerd 2." in found["runtime"].reason
    assert found["pod resources"].reason.startswith("1 containers")
    assert found["pod cgroups"].reason == "/kubepods; driver cgroupfs, root /, by configz"
    assert found["pods"].reason.startswith("6 of 6 pods and ")


def test_each_no_has_its_remedy(settings: KubeletSettings, root: Path, kubelet: KubeletServer, twin: Twin) -> None:
    kubelet.answers |= {"/pods": 403, "/configz": 403}
    (root / "sys/fs/cgroup/cpu/kubepods").rmdir()
    found = lines(settings, root)
    assert {name for name, each in found.items() if each.available} == {"api server"}
    for name in ("kubelet", "configz", "runtime", "pod resources", "pod cgroups"):
        assert found[name].remedy, name
    assert "nodes/pods" in found["kubelet"].remedy


def test_a_node_that_the_api_server_does_not_know(settings: KubeletSettings, root: Path, twin: Twin) -> None:
    away = msgspec.structs.replace(settings, endpoint="https://127.0.0.1:1", timeout_seconds=0.5)
    found = lines(away, root, node="node-7")
    assert not found["api server"].available
    assert "node-7" in found["api server"].reason
    assert "--node" in found["api server"].remedy


def test_a_host_without_a_cluster_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (line,) = examine_cluster(KubeletSettings(), HostTree(tmp_path), node="n", kubeconfig="")
    assert not line.available
    assert "--standalone" in line.remedy
