"""NodeDeclaredFeatures: pods that need a feature of the kubelet go where the node declares it."""

from typing import Any

import numpy as np

from api.kube.declared_features import needed_features
from api.kube.objects import Node
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Bits, Handle, Plugin, Reason


class NodeDeclaredFeatures(Plugin[frozenset[str]]):
    """Keeps the declared features of each row."""

    name = "NodeDeclaredFeatures"
    rank = 105
    requeue_on = frozenset({"nodes/add", "nodes/update"})

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._declared: dict[Row, frozenset[str]] = {}

    def node_changed(self, row: Row, node: Node) -> None:
        """Note what the node declares."""
        self._declared.pop(row, None)
        if node.status.declared_features:
            self._declared[row] = frozenset(node.status.declared_features)

    def node_removed(self, row: Row) -> None:
        """Forget the row."""
        self._declared.pop(row, None)

    def prepare(self, info: PodInfo) -> frozenset[str] | None:
        """None for pods that need no feature."""
        return frozenset(needed_features(info.pod.spec)) or None

    def reasons(self, spec: frozenset[str]) -> tuple[Reason, ...]:
        """One reason."""
        return (Reason("node(s) didn't match Pod's required features", resolvable=False),)

    def filter(self, attempt: Attempt, spec: frozenset[str], rows: Rows) -> Bits:
        """Rejects rows that do not declare all of the features."""
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        return np.array([not spec <= self._declared.get(int(row), frozenset()) for row in numbers], dtype=np.int64)
