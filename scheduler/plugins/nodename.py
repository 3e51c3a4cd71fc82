"""NodeName: a pod that names its node fits nowhere else."""

import numpy as np

from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Bits, Plugin, Reason


class NodeName(Plugin[str]):
    """Compares `spec.nodeName` of pods that come through an extender or a simulator."""

    name = "NodeName"
    rank = 110

    def prepare(self, info: PodInfo) -> str | None:
        """The name, None when the pod names no node."""
        return info.pod.spec.node_name or None

    def reasons(self, spec: str) -> tuple[Reason, ...]:
        """One reason."""
        return (Reason("node(s) didn't match the requested node name", resolvable=False),)

    def filter(self, attempt: Attempt, spec: str, rows: Rows) -> Bits:
        """Rejects every row but one."""
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        return np.asarray(numbers != attempt.snapshot.row(spec), dtype=np.int64)
