"""The pod of a cgroup, and its names. Pure."""

from api.cgroup_path import is_within, lineage
from api.kube.meta import ObjectReference
from api.qos import PriorityBand, QoSClass
from koordlet.identity.cgroup_names import name_cgroup
from koordlet.identity.classes import pod_band, pod_class
from koordlet.identity.pods import PodFacts, PodTable


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
