"""The agent as part of a cluster: the node's name, who tells of pods, and the settings that this turns on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from koordlet.config import AgentSettings
from koordlet.host.files import HostTree
from koordlet.kubelet.opening import find_cluster, node_name, open_pod_source

if TYPE_CHECKING:
    from koordlet.kubelet.source import PodSource
    from koordlet.kubelet.watch import ApiServer


@dataclass(frozen=True, slots=True)
class ClusterMode:
    """Name of the node, settings of an agent in a cluster, and the API server if one is configured."""

    node: str
    settings: AgentSettings
    apiserver: "ApiServer | None"

    @contextmanager
    def open_source(self) -> Iterator["PodSource"]:
        """The started source of pods."""
        tree = HostTree(Path(self.settings.root))
        with open_pod_source(self.settings.kubelet, tree, self.node, self.apiserver) as source:
            yield source


def find_cluster_mode(settings: AgentSettings, *, node: str, kubeconfig: str) -> ClusterMode:
    """Return the mode; flags go before settings, and reporting is on where there is an API server, unless it is off.

    Raises NothingConfigured.
    """
    name = node_name(node or settings.cluster.node_name)
    file = kubeconfig or settings.cluster.kubeconfig
    apiserver = find_cluster(settings.kubelet, node=name, kubeconfig=file)
    is_on = apiserver is not None and settings.cluster.enabled is not False
    reports = msgspec.structs.replace(settings.cluster, enabled=is_on, node_name=name, kubeconfig=file)
    return ClusterMode(name, msgspec.structs.replace(settings, cluster=reports), apiserver)
