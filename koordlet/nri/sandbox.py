"""Pods and containers as the runtime tells of them, in the words of the rules. Pure.

The runtime knows labels, annotations and what the kubelet asks for; the rest of the spec comes from the table of pods,
where the pod is in it already.
"""

from api.kube.resources import CPU, MEMORY
from api.protocol import LABEL_QOS_CLASS
from api.qos import QoSClass
from koordlet.identity.classes import believed_class
from koordlet.identity.pods import PodContainer, PodFacts, PodTable
from koordlet.nri.nri_pb2 import Container, LinuxResources, PodSandbox

CONFIG_SOURCE = "kubernetes.io/config.source"
_KINDS = {"besteffort": "BestEffort", "burstable": "Burstable"}


def pod_of(sandbox: PodSandbox, pods: PodTable) -> PodFacts:
    """Return the pod: as in the table, with the labels and annotations that the runtime was given."""
    labels, annotations = dict(sandbox.labels), dict(sandbox.annotations)
    known = pods.of_uid(sandbox.uid) if sandbox.uid else None
    path = pod_path(sandbox)
    if known is not None:
        return PodFacts(
            name=known.name,
            qos=known.qos,
            priority=known.priority,
            labels={**labels, **known.labels},
            annotations={**annotations, **known.annotations},
            requests=known.requests,
            limits=known.limits,
            uid=known.uid,
            cgroup_uid=known.cgroup_uid,
            kube_qos=known.kube_qos or _kube_qos(path),
            workload=known.workload,
            static=known.static,
            containers=known.containers,
            cgroup_path=path,
        )
    static = annotations.get(CONFIG_SOURCE, "api") != "api"
    try:
        labelled = QoSClass(labels.get(LABEL_QOS_CLASS, ""))
        qos = QoSClass.SYSTEM if static else believed_class(labelled, _kube_qos(path))
    except ValueError:
        qos = QoSClass.NONE
    return PodFacts(
        name=f"{sandbox.namespace}/{sandbox.name}",
        qos=qos,
        labels=labels,
        annotations=annotations,
        uid=sandbox.uid,
        cgroup_uid=sandbox.uid,
        kube_qos=_kube_qos(path),
        static=static,
        cgroup_path=path,
        spec_known=False,
    )


def container_of(container: Container, pod: PodFacts) -> PodContainer:
    """Return the container: as in the table, else with the limits that the kubelet asks the runtime for."""
    for known in pod.containers:
        if known.name == container.name:
            return known
    return PodContainer(container.name, id=container.id, limits=_limits(container.linux.resources))


def pod_path(sandbox: PodSandbox) -> str:
    """Return the path of the pod's cgroup, empty where the runtime does not say it."""
    return _expanded(sandbox.linux.cgroup_parent)


def container_path(container: Container) -> str:
    """Return the path of the container's cgroup; `slice:prefix:id` is systemd's form."""
    path = container.linux.cgroups_path
    slice_name, colon, unit = path.partition(":")
    if not colon:
        return _expanded(path)
    prefix, _, identity = unit.partition(":")
    return f"{_expanded(slice_name)}/{prefix}-{identity}.scope"


def _expanded(path: str) -> str:
    """Return the path of a slice by its name: `a-b.slice` is `/a.slice/a-b.slice`; other paths are as they are."""
    name = path.rpartition("/")[2]
    if not name.endswith(".slice"):
        return f"/{path.strip('/')}" if path.strip("/") else ""
    parts = name.removesuffix(".slice").split("-")
    return "".join(f"/{'-'.join(parts[: count + 1])}.slice" for count in range(len(parts)))


def _kube_qos(path: str) -> str:
    for part in path.split("/"):
        for directory, kube_qos in _KINDS.items():
            if part in (directory, f"kubepods-{directory}.slice"):
                return kube_qos
    return "Guaranteed" if path else ""


def _limits(resources: LinuxResources) -> dict[str, int]:
    limits = {}
    cpu, memory = resources.cpu, resources.memory
    if cpu.quota.value > 0 and cpu.period.value > 0:
        limits[CPU] = cpu.quota.value * 1000 // cpu.period.value
    if memory.limit.value > 0:
        limits[MEMORY] = memory.limit.value
    return limits
