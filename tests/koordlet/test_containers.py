"""Container names from the runtimes' state files."""

import json
from pathlib import Path

import pytest

from koordlet.host.containers import container_name
from koordlet.host.tree import HostTree
from tests.trees import make_tree

ID = "0123456789abcdef" * 4
KUBE = {
    "io.kubernetes.cri.sandbox-namespace": "shop",
    "io.kubernetes.cri.sandbox-name": "web-0",
    "io.kubernetes.cri.container-name": "nginx",
}
CRIO = {
    "io.kubernetes.pod.namespace": "shop",
    "io.kubernetes.pod.name": "web-0",
    "io.kubernetes.container.name": "nginx",
}
CONTAINERD = "run/containerd/io.containerd.runtime.v2.task"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        pytest.param({f"var/lib/docker/containers/{ID}/config.v2.json": {"Name": "/web"}}, "web", id="docker"),
        pytest.param(
            {f"{CONTAINERD}/k8s.io/{ID}/config.json": {"annotations": KUBE}}, "shop/web-0/nginx", id="containerd"
        ),
        pytest.param(
            {f"{CONTAINERD}/default/{ID}/config.json": {"annotations": {"nerdctl/name": "db"}}}, "db", id="nerdctl"
        ),
        pytest.param(
            {f"run/containers/storage/overlay-containers/{ID}/userdata/config.json": {"annotations": CRIO}},
            "shop/web-0/nginx",
            id="cri-o",
        ),
        pytest.param(
            {"var/lib/containers/storage/overlay-containers/containers.json": [{"id": ID, "names": ["pod-db"]}]},
            "pod-db",
            id="podman",
        ),
        pytest.param({f"var/lib/docker/containers/{ID}/config.v2.json": ["foreign"]}, "", id="foreign"),
        pytest.param({}, "", id="nothing"),
    ],
)
def test_name(tmp_path: Path, files: dict[str, object], name: str) -> None:
    make_tree(tmp_path, {path: json.dumps(content) for path, content in files.items()})
    assert container_name(HostTree(tmp_path), ID) == name


def test_a_torn_file_and_a_hostile_id_tell_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"var/lib/docker/containers/{ID}/config.v2.json": '{"Name": "/we'})
    assert container_name(HostTree(tmp_path), ID) == ""
    assert container_name(HostTree(tmp_path), "../../etc/passwd") == ""
