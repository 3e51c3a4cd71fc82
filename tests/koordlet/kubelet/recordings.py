"""Recorded answers of a kubelet and containerd (Kubernetes 1.36, cgroup v1), and the other layouts made of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from koordlet.kubelet.configuration import KubeletConfig, of_configz
from koordlet.kubelet.pod_documents import NodePod, pods_of_list
from koordlet.kubelet.runtime_view import RuntimeContainer, RuntimeSandbox, RuntimeView, cgroup_path_of_info

_DATA = Path(__file__).parent / "data"
KIND = b'{"kubeletconfig": {"cgroupRoot": "/kubelet", "cgroupDriver": "systemd", "cgroupsPerQOS": true}}'
"""KinD's kubelet: a cgroup root of its own, and the systemd driver."""


def recorded(name: str) -> bytes:
    """Return one recorded answer."""
    return (_DATA / name).read_bytes()


def document(name: str) -> Any:
    """Return one recorded answer as a document."""
    return json.loads(recorded(name))


def pods() -> tuple[NodePod, ...]:
    """Return the pods as the kubelet lists them."""
    return pods_of_list(recorded("pods.json")).pods


def config() -> KubeletConfig:
    """Return the recorded configuration."""
    return of_configz(recorded("configz.json"))


def view(of: Mapping[str, Any] | None = None) -> RuntimeView:
    """Return what the runtime said."""
    cri = of or document("containerd.json")
    sandboxes = [
        RuntimeSandbox(
            id=each["id"],
            uid=each["metadata"]["uid"],
            namespace=each["metadata"]["namespace"],
            pod=each["metadata"]["name"],
            attempt=each["metadata"].get("attempt", 0),
            ready=each.get("state", "SANDBOX_READY") == "SANDBOX_READY",
        )
        for each in cri["ListPodSandbox"]["items"]
    ]
    containers = [
        RuntimeContainer(
            id=each["id"],
            sandbox_id=each["pod_sandbox_id"],
            name=each["metadata"]["name"],
            attempt=each["metadata"].get("attempt", 0),
            running=each.get("state") == "CONTAINER_RUNNING",
            ended=each.get("state") == "CONTAINER_EXITED",
        )
        for each in cri["ListContainers"]["containers"]
    ]
    return RuntimeView(cri["Version"]["runtime_name"], tuple(sandboxes), tuple(containers))


def places(of: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the cgroups that the runtime named, by container id."""
    cri = of or document("containerd.json")
    return {key: cgroup_path_of_info(each["info"]) for key, each in cri["ContainerStatus"].items()}


def uid_of(name: str) -> str:
    """Return the uid of a recorded pod."""
    return next(pod.metadata.uid for pod in pods() if pod.metadata.name.startswith(name))
