"""The node's CPUs at present: machine, kubelet, node annotations, share pools. One reader for reports and hooks."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.kube.numa import CpuBasicInfo, CpuDetail
from api.kube.objects import Node
from koordlet.host.cpumodel import cpu_model
from koordlet.host.files import HostError, HostTree
from koordlet.host.topology import NumaMemory, cpu_places, numa_memory, smt_active, turbo_active
from koordlet.identity.pods import NO_PODS, PodTable, PodTableOf
from koordlet.topology.kubelet_cpus import (
    NO_KUBELET,
    STATE_FILE,
    KubeletConfiguration,
    KubeletCpus,
    StateError,
    exclusive_cpus,
    kubelet_cpus,
)
from koordlet.topology.node_cpus import PLAIN_NODE, NodeCpus, node_cpus
from koordlet.topology.share_pools import SharePools, share_pools

_log = logging.getLogger(__name__)

NodeOf = Callable[[], Node | None]
"""The newest object of this node; never waits."""
KubeletConfigurationOf = Callable[[], KubeletConfiguration | None]
"""The kubelet's configuration; None without a kubelet or before it answered; never waits."""
KUBELET_ROOT = "/var/lib/kubelet"
"""The kubelet's root directory, where its state file is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """CPUs and memory of the machine."""

    cpus: tuple[CpuDetail, ...] = ()
    memory: Mapping[int, NumaMemory]
    """By NUMA node."""
    basic: CpuBasicInfo = field(default_factory=CpuBasicInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuState:
    """CPUs of the node at one moment; immutable."""

    machine: Machine
    kubelet: KubeletCpus = NO_KUBELET
    node: NodeCpus = PLAIN_NODE
    pods: PodTable = NO_PODS
    pools: SharePools = field(default_factory=SharePools)


def read_machine(tree: HostTree) -> Machine:
    """Read the machine's CPUs and memory."""
    return Machine(
        cpus=tuple(
            CpuDetail(id=place.id, core=place.core, socket=place.socket, node=place.node) for place in cpu_places(tree)
        ),
        memory=numa_memory(tree),
        basic=CpuBasicInfo(
            cpu_model=cpu_model(tree),
            hyper_thread_enabled=smt_active(tree),
            turbo_enabled=turbo_active(tree),
            cat_l3_cbm_mask=(tree.text("/sys/fs/resctrl/info/L3/cbm_mask") or "").strip(),
            vendor_id=_vendor(tree),
        ),
    )


def assigned_cpus(pods: PodTable) -> Mapping[str, frozenset[int]]:
    """Return the CPUs by uid of the pods that have some for themselves, as the kubelet's PodResources tell."""
    found = {
        pod.cgroup_uid or pod.uid: frozenset(cpu for each in pod.containers for cpu in each.assigned.cpus)
        for pod in pods.pods
    }
    return {uid: cpus for uid, cpus in found.items() if cpus}


class CpuStateReader:
    """Reader of the CPUs' state; `current` may be called from any thread and reads files only where sources changed."""

    def __init__(
        self,
        tree: HostTree,
        pods: PodTableOf,
        *,
        node: NodeOf = lambda: None,
        kubelet: KubeletConfigurationOf = lambda: None,
        kubelet_root: str = KUBELET_ROOT,
    ) -> None:
        self._tree = tree
        self._pods = pods
        self._node = node
        self._kubelet = kubelet
        self._state_file = f"{kubelet_root}/{STATE_FILE}"
        self._lock = threading.Lock()
        self._online: str | None = None
        self._machine = Machine(memory={})
        self._state_text: str | None = None
        self._exclusive: Mapping[str, frozenset[int]] = {}
        self._sources: tuple[object, ...] = ()
        self._current: CpuState | None = None

    def current(self) -> CpuState:
        """Return the state, a new object only where it changed. Raises HostError where sysfs cannot be read."""
        with self._lock:
            online = self._tree.text("/sys/devices/system/cpu/online") or ""
            if online != self._online:
                self._machine = read_machine(self._tree)
                self._online = online
            pods, node, configuration = self._pods(), self._node(), self._kubelet()
            text = self._read_state() if configuration is not None else None
            annotations = node.metadata.annotations if node else {}
            sources = (online, pods, text, configuration, tuple(sorted(annotations.items())))
            if self._current is None or sources != self._sources:
                self._current = self._state(pods, annotations, configuration)
                self._sources = sources
            return self._current

    def _state(
        self, pods: PodTable, annotations: Mapping[str, str], configuration: KubeletConfiguration | None
    ) -> CpuState:
        cpus = self._machine.cpus
        kubelet = kubelet_cpus(configuration, self._exclusive or assigned_cpus(pods), cpus)
        node = node_cpus(annotations, cpus)
        if node.unreadable and (self._current is None or self._current.node.unreadable != node.unreadable):
            _log.warning("annotations of the node that cannot be read are passed over: %s", ", ".join(node.unreadable))
        pools = share_pools(cpus, kubelet, pods.pods, node)
        return CpuState(machine=self._machine, kubelet=kubelet, node=node, pods=pods, pools=pools)

    def _read_state(self) -> str | None:
        """The kubelet replaces its file as a whole; one that cannot be read keeps what was known."""
        try:
            text = self._tree.text(self._state_file)
        except HostError as error:
            _log.debug("%s", error)
            return self._state_text
        if text != self._state_text:
            try:
                self._exclusive = exclusive_cpus(text) if text else {}
            except StateError as error:
                _log.warning("%s is no state of the CPU manager, what was known stays: %s", self._state_file, error)
            self._state_text = text
        return text


def _vendor(tree: HostTree) -> str:
    for line in (tree.text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("vendor_id", "CPU implementer"):
            return value.strip()
    return ""
