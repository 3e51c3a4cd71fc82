"""The workload of a pod, so that every program names it alike."""

from typing import NamedTuple

from api.kube.objects import Pod

TEMPLATE_HASH_LABEL = "pod-template-hash"


class Workload(NamedTuple):
    """The object a human would name as the pod's owner."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """`Kind/namespace/name`, as verdicts on the wire name it."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def workload_of(pod: Pod) -> Workload | None:
    """The pod's workload: its controller, and for a ReplicaSet of a Deployment the Deployment."""
    owner = pod.metadata.controlled_by
    if owner is None:
        return None
    template = pod.metadata.labels.get(TEMPLATE_HASH_LABEL)
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return Workload(pod.metadata.namespace, "Deployment", owner.name.removesuffix(f"-{template}"))
    return Workload(pod.metadata.namespace, owner.kind, owner.name)
