"""Parts of the agent that the cluster's objects act on, or that are reported; without the Kubernetes client."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api.kube.device_use import DeviceUse
from api.kube.objects import Node
from koordlet.config import AgentSettings
from koordlet.control.reports import ControlReports
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.identity.pods import PodTableOf, no_pods

if TYPE_CHECKING:
    from koordlet.kubelet.source import PodSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLinks:
    """What the sink of the cluster is joined to."""

    strategies: StrategyRunner | None = None
    pods: PodTableOf = no_pods
    """The node's pods."""
    reports: ControlReports = field(default_factory=ControlReports)
    devices_of: Callable[[], DeviceUse] = dict
    """Newest use of devices: the same object until it is read again."""
    node_of: Callable[[], Node | None] | None = None
    """Who watches the node's object; without, the reports do."""


def links_of(
    settings: AgentSettings,
    strategies: StrategyRunner | None,
    source: "PodSource | None",
    devices_of: Callable[[], DeviceUse] = dict,
    node_of: Callable[[], Node | None] | None = None,
) -> ClusterLinks:
    """Return the links of an agent; taints travel only where it acts and reports, and from strategies that may act."""
    acts = settings.enforcer.enabled and not settings.enforcer.dry_run and settings.cluster.node_metric
    reports = ControlReports(settings.enforcer.strategies if acts else ())
    return ClusterLinks(
        strategies=strategies,
        pods=source.table if source else no_pods,
        reports=reports,
        devices_of=devices_of,
        node_of=node_of,
    )
