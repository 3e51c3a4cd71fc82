"""Pods of this node, looked up by the pod's uid in a cgroup's path. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.cgroup_path import lineage
from api.kube.meta import ObjectReference
from api.kube.objects import Pod
from api.kube.workload import workload_of
from koordlet.identity.cgroup_names import name_cgroup

CONFIG_HASH = "kubernetes.io/config.hash"
"""Annotation of a static pod's mirror: the uid in the kubelet's cgroup names, which is not the mirror's own."""


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """Reference and owner of a pod."""

    reference: ObjectReference
    workload: str
    """`Kind/namespace/name` of its owner; `namespace/pod` where it has none."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.reference.namespace}/{self.reference.name}"


class PodIndex:
    """Index of the pods of this node. Written by one thread, read by others: each lookup is one step."""

    def __init__(self) -> None:
        self._by_uid: Mapping[str, PodOnNode] = {}

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """Add, replace or remove a pod."""
        pods = dict(self._by_uid)
        if old is not None:
            for uid in _uids(old):
                pods.pop(uid, None)
        if new is not None:
            pods.update(dict.fromkeys(_uids(new), _on_node(new)))
        self._by_uid = pods

    def of_path(self, path: str) -> PodOnNode | None:
        """Return the pod of a cgroup, also of one made inside a container; None outside pods and for unknown pods."""
        uid = pod_uid(path)
        return self._by_uid.get(uid) if uid else None

    def name_of(self, path: str) -> str:
        """Return the name to show: `namespace/pod`, or the path."""
        pod = self.of_path(path)
        return pod.key if pod else path

    def __len__(self) -> int:
        return len({pod.reference.uid for pod in self._by_uid.values()})


def pod_uid(path: str) -> str:
    """Return the uid in a cgroup's path or in that of a parent; empty outside pods."""
    return next((uid for each in lineage(path) if (uid := name_cgroup(each).pod_uid)), "")


def _uids(pod: Pod) -> tuple[str, ...]:
    mirrored = pod.metadata.annotations.get(CONFIG_HASH, "")
    return tuple(uid for uid in (pod.metadata.uid, mirrored) if uid)


def _on_node(pod: Pod) -> PodOnNode:
    meta = pod.metadata
    reference = ObjectReference(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
    workload = workload_of(pod)
    return PodOnNode(reference, workload.path if workload else meta.key)
