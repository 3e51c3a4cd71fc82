"""Container metadata that docker, containerd, podman, nerdctl and cri-o keep on disk: names, image, pod. Read only."""

import json
import re
from collections.abc import Mapping
from typing import Any

from koordlet.host.files import HostTree
from koordlet.identity.workloads import ContainerFacts

_DOCKER = "/var/lib/docker/containers/{id}/config.v2.json"
_BUNDLES = (
    "/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json",
    "/run/containerd/io.containerd.runtime.v2.task/default/{id}/config.json",
    "/run/containers/storage/overlay-containers/{id}/userdata/config.json",
)
_PODMAN = "/var/lib/containers/storage/overlay-containers/containers.json"
_KEYS = {
    "namespace": ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
    "pod": ("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
    "container": ("io.kubernetes.cri.container-name", "io.kubernetes.container.name"),
    "name": ("nerdctl/name",),
    "image": ("io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"),
}
_SANDBOX = {
    "io.kubernetes.cri.container-type": "sandbox",
    "io.kubernetes.cri-o.ContainerType": "sandbox",
    "io.kubernetes.docker.type": "podsandbox",
}
_SERVICE = (("com.docker.compose.project", "com.docker.compose.service"), ("com.docker.swarm.service.name",))
_ID = re.compile(r"^[0-9a-f]{12,64}$")


def container_facts(tree: HostTree, container_id: str) -> ContainerFacts:
    """Metadata of the container.

    Torn or foreign files count as empty: a name is a convenience, never a reason to fail.
    """
    if not _ID.match(container_id):
        return ContainerFacts()
    docker = _document(tree, _DOCKER.format(id=container_id))
    if isinstance(docker, dict) and isinstance(docker.get("Name"), str):
        return _from_docker(docker)
    for bundle in _BUNDLES:
        spec = _document(tree, bundle.format(id=container_id))
        facts = _from_labels(spec.get("annotations")) if isinstance(spec, dict) else ContainerFacts()
        if facts.full_name:
            return facts
    return _from_podman(_document(tree, _PODMAN), container_id)


def _from_docker(document: Mapping[str, Any]) -> ContainerFacts:
    config = document.get("Config")
    config = config if isinstance(config, dict) else {}
    image = config.get("Image")
    return _from_labels(
        config.get("Labels"),
        name=str(document["Name"]).lstrip("/"),
        image=image if isinstance(image, str) else "",
    )


def _from_labels(labels: Any, **known: str) -> ContainerFacts:
    """Facts of labels or annotations, which all runtimes spell alike; `known` ones are not looked for."""
    labels = labels if isinstance(labels, dict) else {}
    found = {fact: next((str(labels[key]) for key in keys if key in labels), "") for fact, keys in _KEYS.items()}
    is_sandbox = bool(found["pod"]) and any(labels.get(key) == kind for key, kind in _SANDBOX.items())
    if is_sandbox:
        found["container"] = ""
    services = ["/".join(str(labels[key]) for key in keys) for keys in _SERVICE if all(key in labels for key in keys)]
    return ContainerFacts(**{**found, **known}, service=services[0] if services else "", is_sandbox=is_sandbox)


def _from_podman(listed: Any, container_id: str) -> ContainerFacts:
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and str(entry.get("id", "")).startswith(container_id):
            names = entry.get("names")
            name = str(names[0]) if isinstance(names, list) and names else ""
            return ContainerFacts(name=name, image=_image_of(entry.get("metadata")))
    return ContainerFacts()


def _image_of(metadata: Any) -> str:
    """Podman keeps a container's own description as JSON in a string."""
    try:
        image = json.loads(metadata)["image-name"]
    except (TypeError, ValueError, KeyError):
        return ""
    return image if isinstance(image, str) else ""


def _document(tree: HostTree, name: str) -> Any:
    try:
        text = tree.text(name)
        return json.loads(text) if text else None
    except (OSError, ValueError):
        return None
