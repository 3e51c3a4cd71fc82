"""What the cluster has, what pods asked for and got, and whose they are, as Prometheus series."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as PrometheusCollector

from controllers.capacity.cluster_use import ClusterUse, whole, worst_owners

MOST_OWNERS = 200
"""Owners with series of their own."""

_STATES = "`allocatable` by nodes, `requested` by pods on nodes, `pending` without a node, `used` by the nodes' reports"

FAMILIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "koord_manager_cluster_cpu_cores": (("state", "priority"), f"CPU by priority class: {_STATES}"),
    "koord_manager_cluster_memory_bytes": (("state", "priority"), f"Memory by priority class: {_STATES}"),
    "koord_manager_owner_cpu_cores": (
        ("namespace", "state", "priority"),
        "CPU that owners of mid, batch and free work requested, wait for and use",
    ),
    "koord_manager_owner_memory_bytes": (
        ("namespace", "state", "priority"),
        "Memory that owners of mid, batch and free work requested, wait for and use",
    ),
}
"""Labels and meaning of every family; all are gauges."""


class ClusterUseMetrics(PrometheusCollector):
    """Reads the sums when it is asked, in the thread of a request."""

    def __init__(self, use: ClusterUse) -> None:
        self._use = use

    def describe(self) -> Iterator[Family]:
        """All families without values."""
        for name, (labels, text) in FAMILIES.items():
            yield GaugeMetricFamily(name, text, labels=labels)

    def collect(self) -> Iterator[Family]:
        """All families."""
        sums = self._use.sums.copy()  # at once, while the loop's thread goes on
        families = {name: GaugeMetricFamily(name, text, labels=labels) for name, (labels, text) in FAMILIES.items()}
        for cell, (cpu, memory) in whole(sums):
            families["koord_manager_cluster_cpu_cores"].add_metric((cell.state, cell.priority), cpu / 1000)
            families["koord_manager_cluster_memory_bytes"].add_metric((cell.state, cell.priority), memory)
        for cell, (cpu, memory) in worst_owners(sums, MOST_OWNERS).items():
            labels = (cell.namespace, cell.state, cell.priority)
            families["koord_manager_owner_cpu_cores"].add_metric(labels, cpu / 1000)
            families["koord_manager_owner_memory_bytes"].add_metric(labels, memory)
        yield from families.values()
