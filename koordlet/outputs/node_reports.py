"""Reports about the node itself: Device and NodeResourceTopology, each where the settings ask for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.kube.objects import Node
from cluster import NODES, Backoff, Client, Informer, Key, Query
from koordlet.devices.reporter import DeviceReporter
from koordlet.host.files import HostTree
from koordlet.identity.pods import NO_PODS, PodTableOf
from koordlet.topology.cpu_state import CpuStateReader, KubeletConfigurationOf, NodeOf
from koordlet.topology.reporter import TopologyReporter

if TYPE_CHECKING:
    from koordlet.config import AgentSettings

RETRY = Backoff(initial_seconds=1.0, maximum_seconds=60.0, jitter=1.0)
"""Delays of the reports while the API server refuses."""


@dataclass(frozen=True, slots=True)
class NodeReports:
    """The reports that run; None where the settings do not ask for one."""

    cpus: CpuStateReader
    """The CPUs' state, which hooks and strategies may read, too."""
    devices: DeviceReporter | None = None
    topology: TopologyReporter | None = None


@contextmanager
def open_node_reports(
    client: Client,
    name: str,
    settings: "AgentSettings",
    tree: HostTree,
    *,
    pods: PodTableOf = lambda: NO_PODS,
    kubelet: KubeletConfigurationOf = lambda: None,
    node: NodeOf | None = None,
    retry: Backoff = RETRY,
) -> Iterator[NodeReports]:
    """Reports of the node called `name`, running while the block does.

    `pods`, `kubelet` and `node` are the newest facts of their sources; without `node` the node is watched here.
    """
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
            devices = DeviceReporter(client, name, node, settings.devices, tree, retry)
            devices.start()
            stack.callback(devices.close)
        if settings.topology.report:
            topology = TopologyReporter(client, name, node, cpus, retry)
            topology.start()
            stack.callback(topology.close)
        yield NodeReports(cpus, devices, topology)
