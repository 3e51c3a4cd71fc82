"""Pods of the benchmark, one of every class that a node knows, as documents. Pure.

A pod of a service has the service and, as its sidecar, a burner, which is stopped unless the schedule lets it run; a
pod of batch work has the burner only. Programs are those of this machine, reached by a mount of its root.
"""

import sys
from dataclasses import dataclass, field
from typing import Any

from cluster import Document

NAMESPACE = "koord-bench"
SERVICE, BURNER = "service", "burner"
MOUNT = "/host"


@dataclass(frozen=True, slots=True)
class Role:
    """A pod of the benchmark."""

    name: str
    port: int = 0
    """Of its service; 0 is batch work without one."""
    labels: dict[str, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    priority_class: str = ""
    static: bool = False
    is_best_effort: bool = False
    """Whether the protocol lets an answer to verdicts limit it."""

    @property
    def namespace(self) -> str:
        """Namespace; pods of a node-critical priority live in kube-system."""
        return "kube-system" if self.priority_class else NAMESPACE


LS, LABELLED_BE, BATCH = "ls-web", "labelled-be", "be-batch"

ROLES = (
    Role(LS, 18081, labels={"koordinator.sh/qosClass": "LS"}, requests={"cpu": "500m", "memory": "64Mi"}),
    Role("burstable", 18082, requests={"cpu": "300m"}),
    Role("guaranteed", 18083, requests={"cpu": "200m", "memory": "128Mi"}, limits={"cpu": "200m", "memory": "128Mi"}),
    Role("node-critical", 18084, priority_class="system-node-critical"),
    Role("static", 18085, requests={"cpu": "100m"}, static=True),
    Role(LABELLED_BE, labels={"koordinator.sh/qosClass": "BE"}, requests={"cpu": "500m"}, is_best_effort=True),
    Role(BATCH, is_best_effort=True),
)


def document(role: Role, *, node: str, image: str, blocks: int, workers: int, folder: str, path: str) -> Document:
    """Return the pod of a role, bound to the node; `path` is the project's, `folder` that of the burners' counters."""
    containers = []
    if role.port:
        service = ["koordlet.demo.service", str(role.port), str(blocks), str(workers)]
        containers.append(_container(SERVICE, image, service, path, role.requests, role.limits))
    burner = ["koordlet.demo.batch", f"{folder}/{role.name}.blocks", str(workers)]
    own = (role.limits, role.limits) if role.port else (role.requests, role.limits)
    containers.append(_container(BURNER, image, burner, path, *own))
    spec: dict[str, Any] = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
        "containers": containers,
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
    }
    if role.priority_class:
        spec["priorityClassName"] = role.priority_class
    if not role.static:
        spec["nodeName"] = node
    metadata = {"name": role.name, "namespace": role.namespace, "labels": {**role.labels, "app": role.name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(
    name: str, image: str, module: list[str], path: str, requests: dict[str, str], limits: dict[str, str]
) -> Document:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["chroot", MOUNT, sys.executable, "-m", *module],
        "env": [{"name": "PYTHONPATH", "value": path}],
        "resources": {"requests": requests, "limits": limits},
        "volumeMounts": [{"name": "host", "mountPath": MOUNT}],
    }
