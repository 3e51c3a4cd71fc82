"""The node as rules see it: topology, pools of CPUs, settings of strategies, devices. Immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from api.qos import QoSClass
from koordlet.hooks.resources import DeviceNode
from koordlet.hooks.settings import DEFAULT_HAMI_LIBRARY
from koordlet.identity.pods import PodFacts
from koordlet.strategies.strategy import Strategy
from koordlet.strategies.view import NodeInfo
from koordlet.topology.share_pools import SharePools

_BY_KUBE_QOS = {"Guaranteed": QoSClass.LSR, "Burstable": QoSClass.LS, "BestEffort": QoSClass.BE}


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """Facts of the node that rules decide by."""

    info: NodeInfo
    pools: SharePools = field(default_factory=SharePools)
    """CPUs for pods without CPUs of their own; an empty pool is not known."""
    strategies: Mapping[str, Strategy[Any]] = field(default_factory=dict)
    """The node's strategies that may act, as configured, by name; rules read their settings and gates only."""
    rdma_nodes: Mapping[str, tuple[DeviceNode, ...]] = field(default_factory=dict)
    """Device nodes of RDMA functions by PCI address; under the empty address those that every user needs."""
    hami_library: str = DEFAULT_HAMI_LIBRARY

    @cached_property
    def cpus(self) -> frozenset[int]:
        """All online CPUs."""
        return frozenset(cpu.id for cpu in self.info.cpus)

    @property
    def ratio_percent(self) -> int:
        """CPU normalization in percent, 100 to 500."""
        return min(max(round(self.info.cpu_normalization_ratio * 100), 100), 500)


def effective_qos(pod: PodFacts) -> QoSClass:
    """Return the class by label, or as the protocol derives it from Kubernetes' class."""
    return pod.qos or _BY_KUBE_QOS.get(pod.kube_qos, QoSClass.NONE)
