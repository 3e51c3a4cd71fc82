"""Pods and containers as the runtime tells of them, in the words of the rules. Pure.

The runtime knows labels, annotations and what the kubelet asks for; the rest of the spec comes from the table of pods,
where the pod is in it already.

What only the scheduler writes (CPUs, devices) counts as the table has it: any client of the runtime chooses the
annotations of a sandbox, and without the spec there is no amount to bound them by.
"""

from api.kube.resources import CPU, MEMORY
from api.protocol import ANNOTATION_DEVICE_ALLOCATED, ANNOTATION_RESOURCE_STATUS, LABEL_QOS_CLASS
from api.qos import QoSClass
from koordlet.identity.cgroup_names import kube_qos_at
from koordlet.identity.classes import believed_class
from koordlet.identity.pods import PodContainer, PodFacts, PodTable
from koordlet.kubelet.cgroup_paths import expanded_slice, path_of_spec
from koordlet.nri.nri_pb2 import Container, LinuxResources, PodSandbox

CONFIG_SOURCE = "kubernetes.io/config.source"
BY_SCHEDULER = (ANNOTATION_RESOURCE_STATUS, ANNOTATION_DEVICE_ALLOCATED)


def pod_of(sandbox: PodSandbox, pods: PodTable) -> PodFacts:
    """Return the pod: as in the table, with the labels and annotations that the runtime was given."""
    labels = dict(sandbox.labels)
    annotations = {key: text for key, text in sandbox.annotations.items() if key not in BY_SCHEDULER}
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
            kube_qos=known.kube_qos or kube_qos_at(path),
            workload=known.workload,
            static=known.static,
            containers=known.containers,
            cgroup_path=path,
        )
    static = annotations.get(CONFIG_SOURCE, "api") != "api"
    try:
        labelled = QoSClass(labels.get(LABEL_QOS_CLASS, ""))
        qos = QoSClass.SYSTEM if static else believed_class(labelled, kube_qos_at(path))
    except ValueError:
        qos = QoSClass.NONE
    return PodFacts(
        name=f"{sandbox.namespace}/{sandbox.name}",
        qos=qos,
        labels=labels,
        annotations=annotations,
        uid=sandbox.uid,
        cgroup_uid=sandbox.uid,
        kube_qos=kube_qos_at(path),
        static=static,
        cgroup_path=path,
        spec_known=False,
    )


def is_placed(sandbox: PodSandbox) -> bool:
    """Return whether the scheduler is said to have given the pod something, for which the table has to be asked."""
    return any(key in sandbox.annotations for key in BY_SCHEDULER)


def container_of(container: Container, pod: PodFacts) -> PodContainer:
    """Return the container: as in the table, else with the limits that the kubelet asks the runtime for."""
    for known in pod.containers:
        if known.name == container.name:
            return known
    return PodContainer(container.name, id=container.id, limits=_limits(container.linux.resources))


def pod_path(sandbox: PodSandbox) -> str:
    """Return the path of the pod's cgroup, empty where the runtime does not say it."""
    path = sandbox.linux.cgroup_parent
    name = path.rpartition("/")[2]
    if name.endswith(".slice"):
        return expanded_slice(name)
    return f"/{path.strip('/')}" if path.strip("/") else ""


def container_path(container: Container) -> str:
    """Return the path of the container's cgroup; `slice:prefix:id` is systemd's form."""
    return path_of_spec(container.linux.cgroups_path)


def _limits(resources: LinuxResources) -> dict[str, int]:
    limits = {}
    cpu, memory = resources.cpu, resources.memory
    if cpu.quota.value > 0 and cpu.period.value > 0:
        limits[CPU] = cpu.quota.value * 1000 // cpu.period.value
    if memory.limit.value > 0:
        limits[MEMORY] = memory.limit.value
    return limits
