"""A pod's document to facts: class, priority, owner, amounts. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.kube.objects import Container, Pod, ResourceRequirements
from api.kube.resources import QuantityError, Resources, add, maximum, parse_resources
from api.kube.times import epoch_seconds
from api.kube.workload import workload_of
from api.protocol import LABEL_QOS_CLASS
from api.qos import SYSTEM_CRITICAL_PRIORITY, QoSClass
from koordlet.identity.classes import believed_class
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts
from koordlet.kubelet.pod_documents import ContainerStatus, NodePod

CONFIG_SOURCE = "kubernetes.io/config.source"
"""Annotation by the kubelet: `api`, or `file` and `http` of a static pod."""
CONFIG_HASH = "kubernetes.io/config.hash"
"""Annotation of a static pod and its mirror: the uid in the kubelet's cgroup names."""
CONFIG_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the mirror at the API server."""
_HASH = re.compile("[0-9a-f]{32}")
_FINISHED = ("Succeeded", "Failed")
_EARLIER_IDS = 8


@dataclass(frozen=True, slots=True)
class DescribedPod:
    """Facts of a pod from its document alone; `problem` says which of them are unknown and why."""

    facts: PodFacts
    problem: str = ""


def describe(pod: NodePod, *, by_kubelet: bool = True) -> DescribedPod:
    """Return the facts of a pod that the kubelet, or else the API server, listed.

    A malformed quantity leaves all its amounts unknown.
    """
    meta, problem = pod.metadata, ""
    static = is_static(meta.annotations, by_kubelet=by_kubelet)
    try:
        amounts = {each.name: _amounts(each.resources) for each in _all_containers(pod)}
        requests, limits = _pod_amounts(pod, amounts)
    except QuantityError as error:
        amounts, requests, limits = {}, {}, {}
        problem = f"pod {meta.key!r}: {error}; its amounts are unknown"
    label = meta.labels.get(LABEL_QOS_CLASS, "")
    qos = qos_of_label(label)
    if label and qos is QoSClass.NONE:
        problem = problem or f"pod {meta.key!r}: label {LABEL_QOS_CLASS}={label!r} is no class"
    kube_qos = pod.status.qos_class or _kube_qos(pod, amounts)
    if static or (pod.spec.priority or 0) >= SYSTEM_CRITICAL_PRIORITY:
        qos = QoSClass.SYSTEM
    elif believed_class(qos, kube_qos) is not qos:
        problem = (
            problem or f"pod {meta.key!r}: class {qos} is not believed of a {kube_qos} pod without such a priority"
        )
        qos = QoSClass.NONE
    owner = workload_of(Pod(metadata=meta))
    facts = PodFacts(
        name=meta.key,
        qos=qos,
        priority=pod.spec.priority,
        labels=meta.labels,
        annotations=meta.annotations,
        requests=requests,
        limits=limits,
        active=pod.status.phase not in _FINISHED and meta.deletion_timestamp is None,
        uid=meta.uid,
        cgroup_uid=cgroup_uid_of(pod, by_kubelet=by_kubelet),
        kube_qos=kube_qos,
        workload=meta.key if static or owner is None else owner.path,
        static=static,
        phase=pod.status.phase,
        created_seconds=epoch_seconds(meta.creation_timestamp),
        containers=tuple(_containers(pod, amounts)),
    )
    return DescribedPod(facts, problem)


def cgroup_uid_of(pod: NodePod, *, by_kubelet: bool) -> str:
    """Return the uid in the kubelet's cgroup names."""
    meta = pod.metadata
    if not is_static(meta.annotations, by_kubelet=by_kubelet):
        return meta.uid
    return meta.annotations.get(CONFIG_HASH, meta.uid)


def is_static(annotations: Mapping[str, str], *, by_kubelet: bool) -> bool:
    """Return whether a pod, or the pod of a mirror, was made by the kubelet from a file or an address.

    The kubelet sets the source itself. At the API server anybody who may make pods can write it, and only the mirror
    counts, which a kubelet runs for its own file or not at all.
    """
    if by_kubelet:
        return annotations.get(CONFIG_SOURCE, "api") in ("file", "http")
    mirrored = annotations.get(CONFIG_MIRROR, "")
    return mirrored == annotations.get(CONFIG_HASH) and bool(_HASH.fullmatch(mirrored))


def qos_of_label(value: str) -> QoSClass:
    """Return the class that the label's value names; NONE where it names none."""
    try:
        return QoSClass(value)
    except ValueError:
        return QoSClass.NONE


def _all_containers(pod: NodePod) -> Iterable[Container]:
    return (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)


_Amounts = tuple[Resources, Resources]


def _amounts(resources: ResourceRequirements) -> _Amounts:
    """Requests and limits; a limit without a request requests as much, as the API server's defaulting has it."""
    limits = parse_resources(resources.limits)
    return limits | parse_resources(resources.requests), limits


def _pod_amounts(pod: NodePod, amounts: Mapping[str, _Amounts]) -> _Amounts:
    """Return the amounts of the whole pod.

    Requests are those that the scheduler counts: the sum of containers and sidecars, or where it is more, what one init
    container and the sidecars started before it request. Limits are those that hold for the pod's cgroup: of resources
    that every container limits.
    """
    lasting = [*pod.spec.containers, *filter(_is_sidecar, pod.spec.init_containers)]
    requests: Resources = {}
    for container in lasting:
        requests = add(requests, amounts[container.name][0])
    before: Resources = {}
    for container in pod.spec.init_containers:
        own = amounts[container.name][0]
        requests = maximum(requests, add(before, own))
        if _is_sidecar(container):
            before = add(before, own)
    limits = _limits([amounts[each.name][1] for each in lasting])
    if pod.spec.resources is not None:
        whole_requests, whole_limits = _amounts(pod.spec.resources)
        requests, limits = requests | whole_requests, limits | whole_limits
    overhead = parse_resources(pod.spec.overhead)
    return add(requests, overhead), {name: amount + overhead.get(name, 0) for name, amount in limits.items()}


def _limits(each: Sequence[Resources]) -> Resources:
    names = set(each[0]).intersection(*each[1:]) if each else set()
    return {name: sum(limits[name] for limits in each) for name in sorted(names)}


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _kube_qos(pod: NodePod, amounts: Mapping[str, _Amounts]) -> str:
    """Return Kubernetes' class where the status does not say it yet: by the cpu and memory of all containers."""
    if not amounts:
        return ""
    counted = [amounts[each.name] for each in (*pod.spec.containers, *pod.spec.init_containers)]
    names = ("cpu", "memory")
    if not any(either.get(name) for both in counted for either in both for name in names):
        return "BestEffort"
    equal = all(limits.get(name) and requests[name] == limits[name] for requests, limits in counted for name in names)
    return "Guaranteed" if equal else "Burstable"


def _containers(pod: NodePod, amounts: Mapping[str, _Amounts]) -> Iterable[PodContainer]:
    spec, status = pod.spec, pod.status
    for container in spec.containers:
        yield _container(container, ContainerRole.APP, status.container_statuses, amounts)
    for container in spec.init_containers:
        role = ContainerRole.SIDECAR if _is_sidecar(container) else ContainerRole.INIT
        yield _container(container, role, status.init_container_statuses, amounts)
    for container in spec.ephemeral_containers:
        yield _container(container, ContainerRole.EPHEMERAL, status.ephemeral_container_statuses, amounts)


def _container(
    container: Container,
    role: ContainerRole,
    statuses: Sequence[ContainerStatus],
    amounts: Mapping[str, _Amounts],
) -> PodContainer:
    status = next((each for each in statuses if each.name == container.name), ContainerStatus())
    requests, limits = amounts.get(container.name, ({}, {}))
    last = status.last_state.terminated
    current = plain_id(status.container_id)
    earlier = plain_id(last.container_id) if last else ""
    return PodContainer(
        name=container.name,
        id=current,
        role=role,
        image=container.image,
        requests=requests,
        limits=limits,
        running=status.state.running is not None,
        restarts=status.restart_count,
        earlier_ids=(earlier,) if earlier and earlier != current else (),
    )


def plain_id(container_id: str) -> str:
    """Return an id without its scheme: `containerd://ab12` is `ab12`."""
    return container_id.rpartition("://")[2]


def newest_first(current: str, *ids: Iterable[str]) -> tuple[str, ...]:
    """Return earlier ids without repetition and without the current one, as many as are kept."""
    known = dict.fromkeys(each for some in ids for each in some if each and each != current)
    return tuple(known)[:_EARLIER_IDS]
