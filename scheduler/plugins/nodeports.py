"""NodePorts: a host port is taken once per node, protocol and address; the empty address is every address."""

from typing import Any

import numpy as np

from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Bits, Handle, Plugin, Reason
from scheduler.matching.hostports import HostPort, host_ports


class NodePorts(Plugin[tuple[HostPort, ...]]):
    """Keeps who holds which port where; costs nothing for pods without host ports."""

    name = "NodePorts"
    rank = 140
    requeue_on = frozenset({"pods/delete", "nodes/add"})

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._holders: dict[tuple[str, int], dict[Row, list[tuple[str, HostPort]]]] = {}
        """Pods by UID that hold a port, by protocol and number, by row."""

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Note the pod's ports."""
        for port in host_ports(info.pod):
            self._holders.setdefault((port.protocol, port.port), {}).setdefault(row, []).append((info.uid, port))

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Free the pod's ports."""
        for port in host_ports(info.pod):
            rows = self._holders[port.protocol, port.port]
            rows[row].remove((info.uid, port))
            if not rows[row]:
                del rows[row]

    def prepare(self, info: PodInfo) -> tuple[HostPort, ...] | None:
        """The pod's ports, None when it has none."""
        return host_ports(info.pod) or None

    def reasons(self, spec: tuple[HostPort, ...]) -> tuple[Reason, ...]:
        """One reason."""
        return (Reason("node(s) didn't have free ports for the requested pod ports"),)

    def filter(self, attempt: Attempt, spec: tuple[HostPort, ...], rows: Rows) -> Bits:
        """Rejects rows where a port conflicts; a reservation holds its ports for its owners."""
        taken = np.zeros(attempt.snapshot.rows_used, dtype=np.int64)
        own = attempt.holders
        for port in spec:
            for row, ports in self._holders.get((port.protocol, port.port), {}).items():
                if any(port.conflicts(other) for uid, other in ports if uid not in own):
                    taken[row] = 1
        return taken[rows]
