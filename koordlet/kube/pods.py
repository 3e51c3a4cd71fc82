"""Pods of this node by the paths of their cgroups, and the table of them that the API server gives. Pure."""

from collections.abc import Mapping, Sequence

from api.cgroup_path import is_within, lineage
from api.kube.meta import ObjectReference
from api.kube.objects import Container, Pod
from api.kube.resources import QuantityError, Resources, maximum, parse_resources, total
from api.kube.times import epoch_seconds
from api.kube.workload import workload_of
from api.protocol import LABEL_QOS_CLASS
from api.qos import PriorityBand, QoSClass
from koordlet.identity.cgroup_names import name_cgroup
from koordlet.identity.classes import pod_band, pod_class
from koordlet.identity.pods import PodContainer, PodFacts, PodTable

CONFIG_HASH = "kubernetes.io/config.hash"
"""Annotation of a static pod's mirror: the uid in the kubelet's cgroup names, which is not the mirror's own."""
CONFIG_MIRROR = "kubernetes.io/config.mirror"


def pod_of(table: PodTable, path: str) -> PodFacts | None:
    """Return the pod of a cgroup, also of one made inside a container; None outside pods and for unknown pods."""
    above = lineage(path)
    placed = next((found[0] for each in above if (found := table.of_path(each))), None)
    if placed is not None:
        return placed
    pod = table.of_uid(uid) if (uid := pod_uid(path)) else None
    # Where the kubelet's layout is known, another directory with the pod's uid in its name is not the pod's.
    return pod if pod and (not pod.cgroup_path or is_within(path, pod.cgroup_path)) else None


def pod_key(table: PodTable, path: str) -> str:
    """Return `namespace/pod`, or the path of what is no known pod."""
    pod = pod_of(table, path)
    return pod.name if pod else path


def full_name(table: PodTable, path: str) -> str:
    """Return `namespace/pod/container`, `namespace/pod` for the pod's own cgroup, or the path of what is no pod."""
    pod = pod_of(table, path)
    if pod is None:
        return path
    found = (
        table.of_container(container_id) for each in lineage(path) if (container_id := name_cgroup(each).container_id)
    )
    container = next((known[1].name for known in found if known and known[0] is pod), "")
    return f"{pod.name}/{container}" if container else pod.name


def pod_uid(path: str) -> str:
    """Return the uid in a cgroup's path or in that of a parent; empty outside pods."""
    return next((uid for each in lineage(path) if (uid := name_cgroup(each).pod_uid)), "")


def reference(pod: PodFacts) -> ObjectReference:
    """Return the reference that Events carry."""
    namespace, _, name = pod.name.partition("/")
    return ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid)


def qos_with_default(pod: PodFacts) -> QoSClass:
    """Return the pod's class; LS where neither it nor its Kubernetes class is known."""
    return pod_class(pod, "").qos or QoSClass.LS


def band_with_default(pod: PodFacts) -> PriorityBand:
    """Return the pod's priority class, or the one that its QoS class implies: batch for BE, prod for others."""
    by_class = PriorityBand.BATCH if qos_with_default(pod) is QoSClass.BE else PriorityBand.PROD
    return pod_band(pod) or by_class


class ApiPods:
    """Table of the pods that the API server reports, for an agent that no other source tells of pods.

    Written by one thread, read by others: `table` is one step.
    """

    def __init__(self) -> None:
        self.table = PodTable()
        self._pods: dict[str, PodFacts] = {}

    def change(self, changes: Sequence[tuple[Pod | None, Pod | None]]) -> None:
        """Add, replace or remove pods, each given as it was and as it is."""
        for old, new in changes:
            if old is not None:
                self._pods.pop(old.metadata.uid, None)
            if new is not None:
                self._pods[new.metadata.uid] = facts_of_pod(new)
        self.table = PodTable(self._pods.values(), generation=self.table.generation + 1)


def facts_of_pod(pod: Pod) -> PodFacts:
    """Return the facts in a pod's object; amounts that are no quantities count as none."""
    meta, spec = pod.metadata, pod.spec
    mirrored = meta.annotations.get(CONFIG_HASH, "")
    static = CONFIG_MIRROR in meta.annotations or bool(mirrored)
    owner = workload_of(pod)
    ids = {each.get("name", ""): str(each.get("containerID", "")) for each in pod.status.container_statuses}
    return PodFacts(
        name=meta.key,
        qos=QoSClass.SYSTEM if static else _labelled(meta.labels),
        priority=spec.priority,
        labels=meta.labels,
        annotations=meta.annotations,
        requests=_whole(pod, "requests"),
        limits=_whole(pod, "limits"),
        active=meta.deletion_timestamp is None and not pod.finished,
        uid=meta.uid,
        cgroup_uid=mirrored or meta.uid,
        kube_qos=pod.status.qos_class,
        workload=owner.path if owner else meta.key,
        static=static,
        host_network=spec.host_network,
        phase=pod.status.phase,
        created_seconds=epoch_seconds(meta.creation_timestamp),
        containers=tuple(
            PodContainer(each.name, ids.get(each.name, "").partition("://")[2], image=each.image)
            for each in spec.containers
        ),
    )


def _labelled(labels: Mapping[str, str]) -> QoSClass:
    try:
        return QoSClass(labels.get(LABEL_QOS_CLASS, ""))
    except ValueError:
        return QoSClass.NONE


def _whole(pod: Pod, side: str) -> Resources:
    """Return the pod's amounts: what its containers add up to, or one init container where that is more."""
    running = total(_amounts(each, side) for each in pod.spec.containers)
    for each in pod.spec.init_containers:
        running = maximum(running, _amounts(each, side))
    return running


def _amounts(container: Container, side: str) -> Resources:
    try:
        return parse_resources(getattr(container.resources, side))
    except QuantityError:
        return {}
