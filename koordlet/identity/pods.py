"""Facts of the node's pods: names, classes, labels, amounts, containers. Sources fill a `PodTable`; pure.

A table is immutable. A source of pods (the kubelet, the API server, a recording) publishes a new one for each change;
readers compare `generation` and look pods up by the uid or the container id in a cgroup's name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.frame import CgroupInfo, CgroupKind
from api.qos import QoSClass

ANNOTATION_PROTECTED = "koordlet.koordinator.sh/protected"
"""Pod annotation; `true` keeps a pod from every action but a loosening."""


class ContainerRole(StrEnum):
    """Role of a container in its pod."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"
    """An init container with restart policy Always."""
    EPHEMERAL = "ephemeral"
    SANDBOX = "sandbox"
    """The pod's own (pause) container."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """What the kubelet's CPU, memory and device managers gave to one container alone."""

    cpus: tuple[int, ...] = ()
    memory: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    """Blocks as (type, bytes, NUMA nodes); the type is `memory` or a size of huge pages."""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of devices by resource name."""


NOTHING_ASSIGNED = Assigned()


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container of a pod; amounts by resource name as in `api.kube.resources`."""

    name: str
    id: str = ""
    """Id at the runtime without its scheme; empty before it was created."""
    role: ContainerRole = ContainerRole.APP
    image: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    running: bool = True
    restarts: int = 0
    cgroup_path: str = ""
    """Below the mount of a hierarchy: told by the runtime, and inside its pod's; empty where it is not known."""
    assigned: Assigned = NOTHING_ASSIGNED
    earlier_ids: tuple[str, ...] = ()
    """Ids of instances that ended, newest first."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod; amounts by resource name as in `api.kube.resources`."""

    name: str
    """`namespace/pod`."""
    qos: QoSClass = QoSClass.NONE
    """As labelled; SYSTEM for static pods and for pods that are critical to the node."""
    priority: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    active: bool = True
    """Neither finished nor terminating."""
    uid: str = ""
    """Uid at the API server."""
    cgroup_uid: str = ""
    """Uid in the kubelet's cgroup names: the config hash of a static pod, else `uid`."""
    kube_qos: str = ""
    """Kubernetes' own class: Guaranteed, Burstable or BestEffort."""
    cgroup_path: str = ""
    """Below the mount of a hierarchy, where the kubelet's configuration places it; a cgroup elsewhere that has this
    uid in its name is not the pod's. Empty where that configuration is not known."""
    workload: str = ""
    """`Kind/namespace/name` of its owner; `namespace/pod` where it has none."""
    static: bool = False
    """Made by the kubelet from a file; the API server has a mirror of it."""
    spec_known: bool = True
    """Whether amounts and class come from the pod's spec; false where only what its author wrote is known."""
    phase: str = ""
    created_seconds: float | None = None
    """Wall-clock time at which it was made; None where it is not known."""
    containers: tuple[PodContainer, ...] = ()

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.name.partition("/")[0]


class PodTable:
    """The pods of the node at one moment; immutable."""

    def __init__(self, pods: Iterable[PodFacts] = (), *, generation: int = 0) -> None:
        """`generation` grows with each change; 0 is no source at all."""
        self.generation = generation
        self.pods = tuple(pods)
        self._by_uid: dict[str, PodFacts] = {}
        self._by_container: dict[str, tuple[PodFacts, PodContainer]] = {}
        self._by_path: dict[str, tuple[PodFacts, PodContainer | None]] = {}
        for pod in self.pods:
            if pod.cgroup_path:
                self._by_path[pod.cgroup_path] = (pod, None)
            self._by_uid.update(dict.fromkeys(filter(None, (pod.uid, pod.cgroup_uid)), pod))
            for container in pod.containers:
                ids = filter(None, (container.id, *container.earlier_ids))
                self._by_container.update(dict.fromkeys(ids, (pod, container)))
                if container.cgroup_path:
                    self._by_path[container.cgroup_path] = (pod, container)

    def of_uid(self, uid: str) -> PodFacts | None:
        """Return the pod with this uid, that of the API server or that in cgroup names."""
        return self._by_uid.get(uid)

    def of_container(self, container_id: str) -> tuple[PodFacts, PodContainer] | None:
        """Return the container with this id and its pod."""
        return self._by_container.get(container_id)

    def of_path(self, path: str) -> tuple[PodFacts, PodContainer | None] | None:
        """Return the pod, and container if it is one's, whose cgroup the kubelet placed at exactly this path."""
        return self._by_path.get(path)

    def __len__(self) -> int:
        return len(self.pods)


NO_PODS = PodTable()
"""The table where no source tells of pods."""

PodTableOf = Callable[[], PodTable]
"""The newest table; never waits."""


def no_pods() -> PodTable:
    """Return the empty table: the source of pods without Kubernetes."""
    return NO_PODS


FactsOf = Callable[[str], PodFacts | None]
"""Facts of the pod with this uid; None where they are not known."""


def no_pod_facts(_uid: str) -> PodFacts | None:
    """Return None for every pod: the source of facts without Kubernetes."""
    return None


def annotated(cgroups: Iterable[CgroupInfo], facts_of: FactsOf) -> frozenset[str]:
    """Return the paths of the pods that are protected by annotation."""
    if facts_of is no_pod_facts:
        return frozenset()
    pods = ((info.path, facts_of(info.pod_uid)) for info in cgroups if info.kind is CgroupKind.POD)
    return frozenset(path for path, facts in pods if facts and facts.annotations.get(ANNOTATION_PROTECTED) == "true")
