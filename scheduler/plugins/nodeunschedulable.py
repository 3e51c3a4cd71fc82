"""NodeUnschedulable: cordoned nodes take only pods that tolerate the cordon."""

from typing import Any

import numpy as np

from api.kube.objects import Node, Taint
from api.kube.taints import tolerated
from api.protocol import TAINT_UNSCHEDULABLE
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Bits, Handle, Plugin, Reason

CORDON = Taint(key=TAINT_UNSCHEDULABLE, effect="NoSchedule")


class NodeUnschedulable(Plugin[tuple[()]]):
    """Keeps a column of cordoned rows."""

    name = "NodeUnschedulable"
    rank = 100
    requeue_on = frozenset({"nodes/add", "nodes/update"})

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._cordoned = handle.snapshot.column(bool, False)

    def node_changed(self, row: Row, node: Node) -> None:
        """Note the cordon."""
        self._cordoned.values[row] = node.spec.unschedulable

    def prepare(self, info: PodInfo) -> tuple[()] | None:
        """None for pods that tolerate the cordon."""
        return None if tolerated(CORDON, info.pod.spec.tolerations) else ()

    def reasons(self, spec: tuple[()]) -> tuple[Reason, ...]:
        """One reason."""
        return (Reason("node(s) were unschedulable", resolvable=False),)

    def filter(self, attempt: Attempt, spec: tuple[()], rows: Rows) -> Bits:
        """Rejects cordoned rows."""
        return self._cordoned.values[rows].astype(np.int64)
