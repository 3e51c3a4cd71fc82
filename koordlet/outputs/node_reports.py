"""Reports about the node itself: Device and NodeResourceTopology, each where the settings ask for it."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from api.kube.device_use import DeviceUse
from api.kube.objects import Node
from api.plugin import Unsupported
from api.protocol import ANNOTATION_STOP
from koordlet.control.node_view import UNCONFIGURED, NodeConfiguration
from koordlet.host.files import HostError, HostTree
from koordlet.identity.pods import NO_PODS, PodTableOf
from koordlet.topology.cpu_state import CpuState, CpuStateReader, KubeletConfigurationOf, NodeOf

if TYPE_CHECKING:
    from cluster import Backoff, Client
    from koordlet.config import AgentSettings
    from koordlet.devices.reporter import DeviceReporter
    from koordlet.topology.reporter import TopologyReporter

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeReports:
    """The reports that run; None where the settings do not ask for one."""

    cpus: CpuStateReader
    """The CPUs' state, which hooks and strategies may read, too."""
    node: NodeOf
    """The newest object of the node."""
    devices: "DeviceReporter | None" = None
    topology: "TopologyReporter | None" = None

    def device_use(self) -> DeviceUse:
        """Return the newest use of GPUs, the same object until it is read again; never waits."""
        return self.devices.use() if self.devices is not None else {}

    def stop_reason(self) -> str:
        """Return why the node's object forbids any action; empty where it does not. Never waits."""
        node = self.node()
        if node is None or node.metadata.annotations.get(ANNOTATION_STOP, "") != "true":
            return ""
        return f"the node is annotated {ANNOTATION_STOP}"

    def configuration(self) -> NodeConfiguration:
        """Return the node's configuration as strategies see it; never waits, and never fails."""
        try:
            return configuration_of(self.cpus.current(), self.node())
        except HostError as error:
            _log.debug("%s", error)
            return UNCONFIGURED


def configuration_of(state: CpuState, node: Node | None) -> NodeConfiguration:
    """Return what a state of the CPUs and a node object say."""
    allocatable: Mapping[str, int] = {}
    if node is not None:
        from koordlet.kube.node_object import allocatable_of

        allocatable = allocatable_of(node)
    return NodeConfiguration(
        allocatable=allocatable,
        reserved=state.node.reserved_amounts,
        reserved_cpus=state.node.reserved,
        system_cpus=state.node.system if state.node.system_exclusive else frozenset(),
        kubelet_static=state.kubelet.static,
        cpu_normalization_ratio=state.node.normalization_ratio,
    )


@contextmanager
def open_node_facts(
    settings: "AgentSettings", pods: PodTableOf, kubelet: KubeletConfigurationOf
) -> Iterator[NodeReports]:
    """Facts of a node with a kubelet, and the reports that the settings ask for where `[cluster]` is enabled.

    Raises Unsupported where it is, and no API server is configured.
    """
    tree = HostTree(Path(settings.root))
    if not settings.cluster.enabled:
        cpus = CpuStateReader(tree, pods, kubelet=kubelet, kubelet_root=settings.kubelet.root_directory)
        yield NodeReports(cpus, lambda: None)
        return
    from cluster import NotConfigured
    from koordlet.kube.reporter import connect, node_name

    try:
        client = connect(settings.cluster)
    except NotConfigured as error:
        raise Unsupported(str(error), "set [cluster] kubeconfig, or [cluster] enabled = false") from error
    node = node_name(settings.cluster)
    with client, open_node_reports(client, node, settings, tree, pods=pods, kubelet=kubelet) as reports:
        yield reports


@contextmanager
def open_node_reports(
    client: "Client",
    name: str,
    settings: "AgentSettings",
    tree: HostTree,
    *,
    pods: PodTableOf = lambda: NO_PODS,
    kubelet: KubeletConfigurationOf = lambda: None,
    node: NodeOf | None = None,
    retry: "Backoff | None" = None,
) -> Iterator[NodeReports]:
    """Reports of the node called `name`, running while the block does.

    `pods`, `kubelet` and `node` are the newest facts of their sources; without `node` the node is watched here.
    """
    from cluster import NODES, Informer, Key, Query
    from koordlet.kube.reporter import RETRY

    delays = retry or RETRY
    with ExitStack() as stack:
        if node is None:
            informer = Informer(client, NODES.of(Node), Query(fields=f"metadata.name={name}"))
            informer.start()
            stack.callback(informer.stop, 5.0)
            key = Key("", name)

            def node() -> Node | None:
                return informer.get(key)

        cpus = CpuStateReader(tree, pods, node=node, kubelet=kubelet, kubelet_root=settings.kubelet.root_directory)
        devices = topology = None
        if settings.devices.report:
            from koordlet.devices.reporter import DeviceReporter

            devices = DeviceReporter(client, name, node, settings.devices, tree, delays)
            devices.start()
            stack.callback(devices.close)
        if settings.topology.report:
            from koordlet.topology.reporter import TopologyReporter

            topology = TopologyReporter(client, name, node, cpus, delays)
            topology.start()
            stack.callback(topology.close)
        yield NodeReports(cpus, node, devices, topology)
