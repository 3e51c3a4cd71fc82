"""Dashboards of Koord. Queries use $__rate_interval and the variables of their dashboard, nothing else of Grafana.

Every selector of a container's series names `namespace` and `pod` by regular expression, so that hosts without
Kubernetes, whose series have neither label, are shown under "All".
"""

from collections.abc import Sequence

from .batch_boards import overcommit, owners
from .board import Dashboard
from .cluster_boards import cluster, manager, scheduler
from .node_boards import actions, agent, culprits, node, workload


def dashboards() -> Sequence[Dashboard]:
    """All dashboards, the overview first."""
    return (
        cluster(),
        overcommit(),
        owners(),
        node(),
        workload(),
        culprits(),
        actions(),
        scheduler(),
        manager(),
        agent(),
    )
