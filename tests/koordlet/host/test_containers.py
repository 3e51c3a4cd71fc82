"""Container names from the runtimes' state files."""

import json
from pathlib import Path

import pytest

from koordlet.host.containers import container_facts
from koordlet.host.files import HostTree
from koordlet.identity.workloads import ContainerFacts
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
    assert container_facts(HostTree(tmp_path), ID).full_name == name


def test_a_torn_file_and_a_hostile_id_tell_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"var/lib/docker/containers/{ID}/config.v2.json": '{"Name": "/we'})
    assert container_facts(HostTree(tmp_path), ID) == ContainerFacts()
    assert container_facts(HostTree(tmp_path), "../../etc/passwd") == ContainerFacts()


DOCKER = f"var/lib/docker/containers/{ID}/config.v2.json"
PODMAN = "var/lib/containers/storage/overlay-containers/containers.json"


@pytest.mark.parametrize(
    ("path", "content", "facts"),
    [
        pytest.param(
            DOCKER,
            {
                "Name": "/shop-web-1",
                "Config": {
                    "Image": "nginx:1.27",
                    "Labels": {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"},
                },
            },
            ContainerFacts(name="shop-web-1", image="nginx:1.27", service="shop/web"),
            id="docker-compose",
        ),
        pytest.param(
            DOCKER,
            {
                "Name": "/web.1.x",
                "Config": {"Image": "nginx@sha256:00", "Labels": {"com.docker.swarm.service.name": "web"}},
            },
            ContainerFacts(name="web.1.x", image="nginx@sha256:00", service="web"),
            id="docker-swarm",
        ),
        pytest.param(
            DOCKER,
            {"Name": "/k8s_nginx_web-0_shop_uid_0", "Config": {"Image": "sha256:00", "Labels": CRIO}},
            ContainerFacts("k8s_nginx_web-0_shop_uid_0", "sha256:00", "", "shop", "web-0", "nginx"),
            id="docker-under-kubernetes",
        ),
        pytest.param(DOCKER, {"Name": "/web", "Config": ["foreign"]}, ContainerFacts(name="web"), id="docker-foreign"),
        pytest.param(
            f"{CONTAINERD}/k8s.io/{ID}/config.json",
            {"annotations": KUBE | {"io.kubernetes.cri.image-name": "quay.io/nginx:1"}},
            ContainerFacts("", "quay.io/nginx:1", "", "shop", "web-0", "nginx"),
            id="containerd",
        ),
        pytest.param(
            PODMAN,
            [{"id": ID, "names": ["web"], "metadata": '{"image-name": "docker.io/library/nginx:latest"}'}],
            ContainerFacts("web", "docker.io/library/nginx:latest"),
            id="podman",
        ),
        pytest.param(
            PODMAN, [{"id": ID, "names": ["web"], "metadata": "torn{"}], ContainerFacts("web"), id="podman-torn"
        ),
    ],
)
def test_facts(tmp_path: Path, path: str, content: object, facts: ContainerFacts) -> None:
    make_tree(tmp_path, {path: json.dumps(content)})
    assert container_facts(HostTree(tmp_path), ID) == facts
