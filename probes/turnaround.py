"""A service's own latency and request rate, read from its sockets without touching the service.

A turnaround is the time from a request's arrival on a server-side TCP socket to the end of the first send on it. Table
`turnaround.port` has one row for each cgroup that answers and local port; the dense table has their sums. Limits of
what sockets can tell: requests pipelined before the first answer count one, an answer in several sends counts one
(but pipelined requests that arrive between two sends of one answer count the second send as theirs), a large
request's upload is part of its turnaround, and a TLS handshake is a request like any other. Connections that were
accepted by the kernel but not by the service when the probe starts are not followed.

Cost by the kernel's BPF statistics under `redis-benchmark -t get -n 40000`: 123 ns an arrival (clients' early leave
included), 134 ns a send.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from api.histogram import SLOTS
from probes.libbpf import BpfObject
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object, sum_per_cpu

U64 = np.dtype(np.uint64)
PORT_RECORD = np.dtype([("cgroup", U64), ("port", U64)])
STATS_RECORD = np.dtype([("requests", U64), ("sum_ns", U64), ("hist", U64, (SLOTS,))])
LISTENER_RECORD = np.dtype([("net", U64), ("port", U64)])
LOST_PLACES = ("turnaround.socket", "turnaround.port", "turnaround.listener")


class Turnaround(BpfProbe):
    """Needs the tracepoints sk_data_ready and sock_send_length (kernel 6.3 and later)."""

    name: ClassVar[str] = "turnaround"
    records: ClassVar = {
        "turnaround_port": PORT_RECORD,
        "turnaround_stats": STATS_RECORD,
        "turnaround_listener": LISTENER_RECORD,
    }

    def __init__(self, bpf: BpfObject) -> None:
        super().__init__(bpf)
        self._ports = bpf.map("ports", PORT_RECORD, STATS_RECORD)
        self._lost = bpf.map("lost", np.dtype(np.uint32), U64)
        self._known = np.empty(0, dtype=PORT_RECORD)

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Turnaround":
        """Load, attach, and follow the server sockets that are open already."""
        kernel.require_tracepoints("sk_data_ready", "sock_send_length", "inet_sock_set_state")
        bpf = open_object(cls.image(), kernel)
        bpf.resize("ports", limits.max_cgroups)
        load(bpf)
        attach(bpf, "on_state", "on_ready", "on_send")
        bpf.iterate("find_listeners")
        bpf.iterate("find_servers")
        return cls(bpf)

    def read(self) -> Reading:
        keys, values = self._ports.read()
        self._known = keys.copy()
        columns = {f"turnaround.{field}": column for field, column in sum_per_cpu(values, STATS_RECORD).items()}
        by_port = Table(
            {"cgroup": self._known["cgroup"].copy(), "port": self._known["port"].astype(np.uint16)}, columns
        )
        _, lost = self._lost.read()
        return Reading(
            {CGROUP: sum_by_cgroup(by_port), "turnaround.port": by_port},
            dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True)),
        )

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._ports.delete(self._known[np.isin(self._known["cgroup"], ids)])


def sum_by_cgroup(table: Table) -> Table:
    """Add the rows of one cgroup together; the result has one row a cgroup, in order of id."""
    ids, row_of = np.unique(table.ids, return_inverse=True)
    summed = {}
    for name, column in table.columns.items():
        total = np.zeros((len(ids), *column.shape[1:]), dtype=column.dtype)
        np.add.at(total, row_of, column)
        summed[name] = total
    return Table({"cgroup": ids}, summed)
