"""Parts of the agent that the cluster's objects act on, or that are reported; without the Kubernetes client."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api.kube.device import DeviceInfo
from koordlet.config import AgentSettings
from koordlet.control.reports import ControlReports
from koordlet.control.strategy_runner import StrategyRunner

if TYPE_CHECKING:
    from koordlet.kubelet.source import PodSource


DeviceUse = Mapping[str, Sequence[DeviceInfo]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLinks:
    """What the sink of the cluster is joined to."""

    strategies: StrategyRunner | None = None
    source: "PodSource | None" = None
    """Tells of the node's pods and of the kubelet; without it the reports watch the pods themselves."""
    reports: ControlReports = field(default_factory=ControlReports)
    devices_of: Callable[[], DeviceUse] = dict
    """Use of devices at present, as the NodeMetric tells it (`koordlet/kube/node_metric.py`)."""


def links_of(
    settings: AgentSettings,
    strategies: StrategyRunner | None,
    source: "PodSource | None",
    devices_of: Callable[[], DeviceUse] = dict,
) -> ClusterLinks:
    """Return the links of an agent; taints travel only where it acts and reports, and from strategies that may act."""
    acts = settings.enforcer.enabled and not settings.enforcer.dry_run and settings.cluster.node_metric
    reports = ControlReports(settings.enforcer.strategies if acts else ())
    return ClusterLinks(strategies=strategies, source=source, reports=reports, devices_of=devices_of)
