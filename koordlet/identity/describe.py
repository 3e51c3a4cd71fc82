"""Description of a cgroup: names, class, pod and workload, from its path, its owner and the table of pods. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from api.cgroup_names import printable
from api.cgroup_path import is_within, lineage
from api.frame import UNKNOWN_UID, CgroupInfo, CgroupKind
from api.qos import QoSSource, is_protected
from koordlet.identity.cgroup_names import KUBEPODS, CgroupName, QoSRule, kubepods_of, name_cgroup
from koordlet.identity.classes import Classification, is_critical, layout_class, pod_band, pod_class, rule_class
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import NO_PODS, ContainerRole, PodContainer, PodFacts, PodTable
from koordlet.identity.workloads import ContainerFacts, generalise, workload_of

SANDBOX = "POD"
"""Name of a pod's sandbox (pause) container in the kubelet's own metrics."""

RuntimeFacts = Callable[[str], ContainerFacts]
"""Facts of the container with this id from the runtime's state files; empty where these have none."""


@dataclass(frozen=True, slots=True)
class Description:
    """A cgroup as it is known now."""

    info: CgroupInfo
    is_awaited: bool = False
    """The kubelet's tree has it, and the table of pods does not: a newer table may."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What cgroups are described from."""

    pods: PodTable = NO_PODS
    rules: tuple[QoSRule, ...] = ()
    kubepods: frozenset[str] = frozenset(KUBEPODS)
    """The kubelet's directories above all pods."""
    applications: Mapping[str, HostApplicationGroup] = field(default_factory=dict)
    """Host applications of the node's NodeSLO by the path of their cgroup."""

    def with_pods(self, pods: PodTable) -> "Sources":
        """Return the sources with a newer table, and the directories that the kubelet placed its pods in."""
        placed = {kubepods_of(pod.cgroup_path) for pod in pods.pods if pod.cgroup_path}
        return replace(self, pods=pods, kubepods=self.kubepods | placed - {""})


def describe(
    identity: int,
    path: str,
    sources: Sources,
    runtime: RuntimeFacts,
    *,
    owner_uid: int = UNKNOWN_UID,
    delegated: bool = False,
) -> Description:
    """Describe a cgroup.

    With a table of pods, a cgroup in the kubelet's tree is a pod's only if the table has the pod, at this place. A
    `delegated` cgroup, one that another user than root owns or can make, belongs to no pod or container.
    """
    named = name_cgroup(path, kubepods=sources.kubepods, delegated=delegated)
    info = CgroupInfo(identity, path, printable(named.name), kind=named.kind, owner_uid=owner_uid)
    if not named.pod_uid:
        facts = runtime(named.container_id) if named.container_id else ContainerFacts()
        if sources.pods.generation:
            facts = replace(facts, namespace="", pod="", container="", is_sandbox=False)
        return Description(_outside_pods(info, named, facts, sources, delegated=delegated))
    if not sources.pods.generation:
        return Description(_by_runtime(info, named, runtime, sources.rules))
    found = _pod_at(path, named, sources.pods)
    if found is None:
        unknown = replace(info, kind=CgroupKind.PLAIN, name=path.rpartition("/")[2])
        return Description(_classed(unknown, rule_class(path, "", sources.rules)), is_awaited=True)
    pod, container = found
    is_awaited = False
    if container is None and named.container_id:
        container = _container_by_runtime(pod, named.container_id, runtime)
        is_app = container is None or container.role is not ContainerRole.SANDBOX
        is_awaited = container is None or (named.kind is CgroupKind.CONTAINER and is_app)
    return Description(_of_pod(info, named, pod, container, sources.rules), is_awaited)


def _outside_pods(
    info: CgroupInfo, named: CgroupName, facts: ContainerFacts, sources: Sources, *, delegated: bool
) -> CgroupInfo:
    """A unit, a container without a pod, a directory of the kubelet, any other. Runtime's facts of a pod count, too."""
    rules, applications = sources.rules, sources.applications
    name = printable(facts.full_name or named.name)
    classed = rule_class(info.path, "" if delegated else name, rules)
    application = next((applications[each] for each in lineage(info.path) if each in applications), None)
    if application is not None:
        info = replace(info, priority_band=application.priority)
        name = printable(application.name) if info.path in applications else name
        classed = classed if classed.qos else Classification(application.qos, QoSSource.NODE_SLO)
    workload = generalise(info.path) if delegated else workload_of(info.path, named, facts)
    described = replace(_with_ids(_with_facts(info, facts), named), name=name, workload=printable(workload))
    return _classed(described, classed if classed.qos else layout_class(named.kube_qos))


def _by_runtime(info: CgroupInfo, named: CgroupName, runtime: RuntimeFacts, rules: tuple[QoSRule, ...]) -> CgroupInfo:
    """A pod's cgroup where no source tells of pods: by the layout, and by the runtime's files."""
    facts = runtime(named.container_id) if named.container_id else ContainerFacts()
    name, workload = named.name, workload_of(info.path, named, facts)
    if facts.full_name:
        name = f"{facts.full_name}:/{named.inside}" if named.inside else facts.full_name
    name = printable(name)
    classed = rule_class(info.path, name, rules)
    described = replace(_with_ids(_with_facts(info, facts), named), name=name, workload=printable(workload))
    return _classed(described, classed if classed.qos else layout_class(named.kube_qos))


def _of_pod(
    info: CgroupInfo,
    named: CgroupName,
    pod: PodFacts,
    container: PodContainer | None,
    rules: tuple[QoSRule, ...],
) -> CgroupInfo:
    name = f"{pod.name} (sandbox)" if container and container.role is ContainerRole.SANDBOX else pod.name
    if container is not None and container.role is not ContainerRole.SANDBOX:
        name = f"{pod.name}/{container.name}"
    elif container is None and named.container_id:
        name = f"{pod.name}/{named.container_id[:12]}"
    name = printable(f"{name}:/{named.inside}" if named.inside else name)
    is_container = named.kind is CgroupKind.CONTAINER
    classed = rule_class(info.path, name, rules)
    described = replace(
        _with_ids(info, named),
        name=name,
        workload=printable(pod.workload or pod.name) if is_container or named.kind is CgroupKind.POD else "",
        container=printable(_label_of(container)) if is_container else "",
        namespace=printable(pod.namespace),
        pod=printable(pod.name.partition("/")[2]),
        role=container.role.value if container and is_container else "",
        priority=pod.priority,
        priority_band=pod_band(pod).value,
        pod_uid=pod.uid or named.pod_uid,
        kube_qos=pod.kube_qos or named.kube_qos,
    )
    # The class alone decides what is protected, so that no rule with a wide pattern takes it from a critical pod.
    keeps_rule = classed.qos and (is_protected(classed.qos) or not is_critical(pod))
    return _classed(described, classed if keeps_rule else pod_class(pod, named.kube_qos))


def _pod_at(path: str, named: CgroupName, pods: PodTable) -> tuple[PodFacts, PodContainer | None] | None:
    """The pod, and the container if the table has it, of a cgroup in the kubelet's tree; None where it is no pod's."""
    for each in lineage(path):
        placed = pods.of_path(each)
        if placed is not None:
            return placed[0], placed[1] or _container_of(placed[0], named, pods)
    pod = pods.of_uid(named.pod_uid)
    if pod is None or (pod.cgroup_path and not is_within(path, pod.cgroup_path)):
        return None
    return pod, _container_of(pod, named, pods)


def _container_of(pod: PodFacts, named: CgroupName, pods: PodTable) -> PodContainer | None:
    found = pods.of_container(named.container_id) if named.container_id else None
    return found[1] if found is not None and found[0] is pod else None


def _container_by_runtime(pod: PodFacts, container_id: str, runtime: RuntimeFacts) -> PodContainer | None:
    """A container that the table does not have yet, as the runtime's files tell; None unless they name this pod."""
    facts = runtime(container_id)
    if f"{facts.namespace}/{facts.pod}" != pod.name:
        return None
    if facts.is_sandbox:
        return PodContainer(SANDBOX, container_id, ContainerRole.SANDBOX)
    if not facts.container:
        return None
    known = next((each for each in pod.containers if each.name == facts.container), None)
    return known or PodContainer(facts.container, container_id)


def _label_of(container: PodContainer | None) -> str:
    if container is None:
        return ""
    return SANDBOX if container.role is ContainerRole.SANDBOX else container.name


def _with_facts(info: CgroupInfo, facts: ContainerFacts) -> CgroupInfo:
    container = SANDBOX if facts.is_sandbox else facts.container
    role = ContainerRole.SANDBOX.value if facts.is_sandbox else ""
    return replace(
        info,
        namespace=printable(facts.namespace),
        pod=printable(facts.pod),
        container=printable(container) if info.kind is CgroupKind.CONTAINER else "",
        role=role if info.kind is CgroupKind.CONTAINER else "",
    )


def _with_ids(info: CgroupInfo, named: CgroupName) -> CgroupInfo:
    container_id = named.container_id if named.kind is CgroupKind.CONTAINER else ""
    return replace(info, pod_uid=named.pod_uid, container_id=container_id, kube_qos=named.kube_qos)


def _classed(info: CgroupInfo, classification: Classification) -> CgroupInfo:
    return replace(info, qos=classification.qos.value, qos_source=classification.source)
