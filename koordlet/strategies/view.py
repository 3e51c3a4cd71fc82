"""View of the node that strategies decide from: one tick as immutable values. Absent measurements are None, never 0.

CPU is millicores (usage and amounts), memory is bytes, shares are fractions 0..1 and named `_ratio`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache

import msgspec

from api.cgroup_path import outermost
from api.cpuset import parse_cpuset
from api.intents import Knob
from api.kube.numa import ResourceStatus
from api.kube.resources import CPU, MEMORY
from api.protocol import (
    ANNOTATION_RESOURCE_STATUS,
    BATCH_CPU,
    BATCH_MEMORY,
    LABEL_PRIORITY_CLASS,
    MID_CPU,
    MID_MEMORY,
)
from api.qos import PriorityBand, QoSClass, QoSSource, is_protected, priority_band


class GroupKind(StrEnum):
    """Kind of a cgroup on the node."""

    QOS_DIR = "qos-dir"
    """One of the kubelet's directories, distinguished by `kube_qos`; Guaranteed is the one above the others."""
    POD = "pod"
    CONTAINER = "container"
    HOST_APP = "host-app"


class KubeQoS(StrEnum):
    """Kubernetes' own classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class CpuThread:
    """One hardware thread; threads of one core are SMT siblings; all numbers are machine-wide."""

    id: int
    core: int
    socket: int
    node: int


@dataclass(frozen=True, slots=True)
class CacheControl:
    """Cache and bandwidth that resctrl can set, from its info files."""

    mask: int
    """All ways of the last-level cache, contiguous from bit 0."""
    domains: tuple[int, ...] = (0,)
    least_ways: int = 1
    bandwidth_domains: tuple[int, ...] = ()
    """Empty where memory bandwidth cannot be set."""
    bandwidth_step: int = 10
    """Granularity of the percent on Intel."""
    bandwidth_floor: int = 10
    """Least percent that the hardware takes."""
    bandwidth_full: int | None = None
    """Where bandwidth is an absolute figure (AMD): what 100 percent of one domain is, in the schemata's unit."""
    bandwidth_unlimited: int = 2048
    """The absolute figure that lifts the limit."""


@dataclass(frozen=True, kw_only=True)
class NodeInfo:
    """Hardware, capacity and configuration of the node; amounts by resource name as in `api.kube.resources`."""

    cpus: tuple[CpuThread, ...]
    memory_bytes: int
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """From the cluster or the settings, with batch and mid resources; a missing name is not known."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """From the node's reservation annotation."""
    reserved_cpus: frozenset[int] = frozenset()
    system_cpus: frozenset[int] = frozenset()
    """CPUs exclusive to the system class."""
    kubelet_static: bool = False
    """Whether the kubelet assigns CPUs itself; upper directories are then its own."""
    cpu_normalization_ratio: float = 1.0
    """Speed of a core over that of the cores which limits are meant for."""
    page_bytes: int = 4096
    disks: Mapping[str, str] = field(default_factory=dict)
    """Name of a device or volume group to major:minor."""
    cache: CacheControl | None = None
    network_bits_per_second: int = 0
    """0 is not known."""
    lacking: frozenset[Knob] = frozenset()
    """Knobs that this host is known not to have."""

    @cached_property
    def cpu_millicores(self) -> int:
        """CPU capacity."""
        return len(self.cpus) * 1000

    @property
    def kubelet_reserved_millicores(self) -> int:
        """Capacity less allocatable, at least 0."""
        return max(self.cpu_millicores - self.allocatable.get(CPU, self.cpu_millicores), 0)


@dataclass(frozen=True, kw_only=True)
class Group:
    """One cgroup that strategies may act on."""

    path: str
    kind: GroupKind
    name: str = ""
    """`namespace/pod`, the container's or the application's name."""
    workload: str = ""
    """`Kind/namespace/name` of a pod's owner; empty where it is not known."""
    uid: str = ""
    pod: str = ""
    """Path of a container's pod."""
    qos: QoSClass = QoSClass.NONE
    """QoS class by label; containers have their pod's."""
    qos_source: QoSSource = QoSSource.NONE
    """Origin of the class of its cgroup."""
    kube_qos: KubeQoS = KubeQoS.BURSTABLE
    priority: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    """As its owner states them. Not what its knobs hold: strategies set those, and steps would build upon steps."""
    bound_cpus: frozenset[int] = frozenset()
    """CPUs exclusive to it by its cpuset or its containers'; see `own_cpus`."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """A pod's volumes on block devices, name to major:minor."""
    cpu_millicores: float | None = None
    throttled_ratio: float | None = None
    """Throttled periods over all periods of the last tick."""
    memory_bytes: int | None = None
    """Without page cache."""
    cache_bytes: int | None = None
    memory_pressure_ratio: float | None = None
    """Share of the last tick with some task stalled on memory."""
    knobs: Mapping[Knob, str] = field(default_factory=dict)
    """Present values of the knobs, each read when it is asked for first and the same for the rest of the tick."""
    active: bool = True
    """Running and not terminating."""

    @property
    def effective_qos(self) -> QoSClass:
        """QoS class by label, or as Koordinator's protocol derives it from Kubernetes' class."""
        return self.qos or _BY_KUBE_QOS[self.kube_qos]

    @property
    def protected(self) -> bool:
        """Never limited and never evicted: SYSTEM, LSE or LSR, with a label or without, or critical to the system."""
        qos = self.qos if self.kind is GroupKind.QOS_DIR else self.effective_qos
        return is_protected(qos, self.priority)

    @property
    def own_cpus(self) -> frozenset[int]:
        """CPUs exclusive to it, by the kubelet or by the scheduler's annotation.

        The annotation counts up to what the pod requests, and not for best-effort pods: their authors can write it.
        """
        given = _scheduled_cpus(self.annotations.get(ANNOTATION_RESOURCE_STATUS, ""))
        if self.best_effort or len(given) * 1000 > self.requests.get(CPU, 0):
            return self.bound_cpus
        return self.bound_cpus | given

    @property
    def best_effort(self) -> bool:
        """Best-effort by label or by Kubernetes' class."""
        return self.qos is QoSClass.BE or self.kube_qos is KubeQoS.BEST_EFFORT

    @property
    def band(self) -> PriorityBand:
        """Priority band by label, else by number; without one, batch for best-effort work and prod for the rest."""
        label = self.labels.get(LABEL_PRIORITY_CLASS)
        known = priority_band(self.priority) if label is None else _BAND_BY_NAME.get(label, PriorityBand.NONE)
        if known is not PriorityBand.NONE:
            return known
        return PriorityBand.BATCH if self.effective_qos is QoSClass.BE else PriorityBand.PROD

    @property
    def cpu_name(self) -> str:
        """Name of the resource that its CPU is counted in: batch, mid or the node's own."""
        return {PriorityBand.BATCH: BATCH_CPU, PriorityBand.MID: MID_CPU}.get(self.band, CPU)

    @property
    def memory_name(self) -> str:
        """Name of the resource that its memory is counted in."""
        return {PriorityBand.BATCH: BATCH_MEMORY, PriorityBand.MID: MID_MEMORY}.get(self.band, MEMORY)


@lru_cache(maxsize=4096)
def _scheduled_cpus(status: str) -> frozenset[int]:
    """Return the CPUs of a resource-status annotation; none where it names none or cannot be read."""
    try:
        return parse_cpuset(msgspec.json.decode(status, type=ResourceStatus).cpuset) if status else frozenset()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return frozenset()


@dataclass(frozen=True, kw_only=True)
class MemoryDomain:
    """Memory shared by online and best-effort work: the node, or a cgroup above both that has a limit."""

    path: str
    """`/` is the node."""
    limit_bytes: int
    free_bytes: int
    """Free below the limit; of the node what is available, since the kernel reclaims there before a task waits
    for it."""
    usage_bytes: Mapping[str, int] = field(default_factory=dict)
    """Pods and applications in it to all memory charged to them now; empty while there is plenty."""
    reclaimable_bytes: Mapping[str, int] = field(default_factory=dict)
    """Best-effort ones among these to the memory that could be reclaimed from them at once."""


_BAND_BY_NAME = {band.value: band for band in PriorityBand}
_BY_KUBE_QOS = {
    KubeQoS.GUARANTEED: QoSClass.LSR,
    KubeQoS.BURSTABLE: QoSClass.LS,
    KubeQoS.BEST_EFFORT: QoSClass.BE,
}


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """The node in one tick; usages are averages over the `interval_seconds` before it."""

    node: NodeInfo
    groups: tuple[Group, ...] = ()
    time_seconds: float = 0.0
    """Wall clock, since the epoch, for calendars. Durations go by the monotonic time passed to a strategy."""
    interval_seconds: float = 1.0
    cpu_millicores: float | None = None
    """Usage of the whole node."""
    memory_bytes: int | None = None
    """Usage of the whole node, without reclaimable memory."""
    load: float | None = None
    """Load average of the last minute."""
    cpu_pressure_ratio: float | None = None
    memory_pressure_ratio: float | None = None
    io_pressure_ratio: float | None = None
    """Share of the last tick with some task stalled."""
    disk_used_ratio: float | None = None
    """Of the fullest file system that pods write to."""
    evictions: Mapping[str, float] = field(default_factory=dict)
    """Path of each recently evicted pod to the monotonic time at which its eviction began."""
    evictions_asked: frozenset[str] = frozenset()
    """Paths of pods whose eviction is asked for and not answered yet."""
    evictions_refused: frozenset[str] = frozenset()
    """Paths of pods whose eviction was refused lately: others have to be chosen."""
    may_evict: bool = True
    """Whether `[enforcer] evict` allows that work is ended."""
    memory_domains: tuple[MemoryDomain, ...] | None = None
    """Innermost last; None where no strategy needs them, or they are not known."""

    @cached_property
    def pods(self) -> tuple[Group, ...]:
        """All pods, terminating ones included."""
        return tuple(group for group in self.groups if group.kind is GroupKind.POD)

    @cached_property
    def host_apps(self) -> tuple[Group, ...]:
        """Applications on the node that are no pods, without those within another: nothing counts twice."""
        apps = [group for group in self.groups if group.kind is GroupKind.HOST_APP]
        kept = outermost(app.path for app in apps)
        return tuple(app for app in apps if app.path in kept)

    @cached_property
    def _containers(self) -> dict[str, tuple[Group, ...]]:
        found: dict[str, tuple[Group, ...]] = {}
        for group in self.groups:
            if group.kind is GroupKind.CONTAINER:
                found[group.pod] = (*found.get(group.pod, ()), group)
        return found

    def containers(self, pod: Group) -> tuple[Group, ...]:
        """Return the containers of a pod, in the view's order."""
        return self._containers.get(pod.path, ())

    def qos_dir(self, kube_qos: KubeQoS) -> Group | None:
        """Return the kubelet's directory of a class; None without Kubernetes."""
        return self._qos_dirs.get(kube_qos)

    @cached_property
    def _qos_dirs(self) -> dict[KubeQoS, Group]:
        return {group.kube_qos: group for group in self.groups if group.kind is GroupKind.QOS_DIR}
