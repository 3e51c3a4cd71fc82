"""Names of containers from the state files that docker, containerd, podman and cri-o keep on disk. Read only."""

import json
import re
from typing import Any

from koordlet.host.tree import HostTree

_DOCKER = "/var/lib/docker/containers/{id}/config.v2.json"
_BUNDLES = (
    "/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json",
    "/run/containerd/io.containerd.runtime.v2.task/default/{id}/config.json",
    "/run/containers/storage/overlay-containers/{id}/userdata/config.json",
)
_PODMAN = "/var/lib/containers/storage/overlay-containers/containers.json"
_KUBE_KEYS = {
    "namespace": ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
    "pod": ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
    "container": ("io.kubernetes.cri.container-name", "io.kubernetes.container.name"),
}
_ID = re.compile(r"^[0-9a-f]{12,64}$")


def container_name(tree: HostTree, container_id: str) -> str:
    """The name people gave the container, `namespace/pod/container` in Kubernetes; empty if nothing tells.

    Torn or foreign files count as telling nothing: a name is a convenience, never a reason to fail.
    """
    if not _ID.match(container_id):
        return ""
    docker = _document(tree, _DOCKER.format(id=container_id))
    if isinstance(docker, dict) and isinstance(docker.get("Name"), str):
        return str(docker["Name"]).lstrip("/")
    for bundle in _BUNDLES:
        spec = _document(tree, bundle.format(id=container_id))
        name = _from_annotations(spec.get("annotations")) if isinstance(spec, dict) else ""
        if name:
            return name
    return _from_podman(_document(tree, _PODMAN), container_id)


def _from_annotations(annotations: Any) -> str:
    if not isinstance(annotations, dict):
        return ""
    if isinstance(annotations.get("nerdctl/name"), str):
        return str(annotations["nerdctl/name"])
    parts = [next((str(annotations[key]) for key in keys if key in annotations), "") for keys in _KUBE_KEYS.values()]
    return "/".join(part for part in parts if part)


def _from_podman(listed: Any, container_id: str) -> str:
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and str(entry.get("id", "")).startswith(container_id):
            names = entry.get("names")
            return str(names[0]) if isinstance(names, list) and names else ""
    return ""


def _document(tree: HostTree, name: str) -> Any:
    try:
        text = tree.text(name)
        return json.loads(text) if text else None
    except (OSError, ValueError):
        return None
