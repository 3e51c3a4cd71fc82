"""A node with a kubelet and a runtime that answer from recordings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.kubelet.settings import KubeletSettings
from tests.koordlet.kubelet.recordings import document, recorded
from tests.koordlet.kubelet.servers import TOKEN, KubeletServer, RuntimeServer, make_certificate
from tests.trees import make_tree


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that names the node and not its address, as kubelets have; its authority is beside it."""
    return make_certificate(tmp_path_factory.mktemp("pki"), "DNS:node-0")


@pytest.fixture
def kubelet(certificate: Path) -> Iterator[KubeletServer]:
    answers = {"/pods": recorded("pods.json"), "/configz": recorded("configz.json")}
    with KubeletServer(certificate, answers) as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The host's file system: a cgroup tree on v1 with the kubelet's directories."""
    mountinfo = "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    tree = {"/proc/self/mountinfo": mountinfo, "/sys/fs/cgroup/cpu/kubepods": {}, "/var/lib/kubelet": {}}
    return make_tree(tmp_path / "r", tree)


@pytest.fixture
def runtime(root: Path) -> Iterator[RuntimeServer]:
    with RuntimeServer(root / "run/containerd/containerd.sock", document("containerd.json")) as running:
        yield running


@pytest.fixture
def settings(kubelet: KubeletServer, certificate: Path, tmp_path: Path) -> KubeletSettings:
    (tmp_path / "token").write_text(TOKEN + "\n")
    return KubeletSettings(
        endpoint=kubelet.url,
        ca_file=str(certificate.parent / "ca.crt"),
        token_file=str(tmp_path / "token"),
        pod_resources_socket="/run/containerd/containerd.sock",
        timeout_seconds=5.0,
    )
