"""A service's own latency and request rate, read from its sockets without touching the service.

A turnaround is the time from a request's arrival on a server-side TCP socket to the end of the first send on it. Table
`turnaround.port` has one row for each cgroup that answers and local port; the dense table has their sums. Where a host
uses up ports, rows of idle ones go and only the sums keep them.

Limits of measuring at sockets: requests pipelined before the first answer count one, an answer in several sends counts
one (but a pipelined request that arrives between two sends of one answer takes the second send for its own), a large
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
from probes.bpf_object import BpfObject
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object, sum_per_cpu
from probes.shared_maps import share

U64 = np.dtype(np.uint64)
PORT_RECORD = np.dtype([("cgroup", U64), ("port", U64)])
STATS_RECORD = np.dtype([("requests", U64), ("sum_ns", U64), ("hist", U64, (SLOTS,))])
LISTENER_RECORD = np.dtype([("net", U64), ("port", U64)])
FOLD_ABOVE = 0.75
"""Ratio of the map that ports may fill before idle ones are folded into their cgroup."""
EMPTY = Table(
    {"cgroup": np.empty(0, np.uint64), "port": np.empty(0, np.uint16)},
    {
        "turnaround.requests": np.empty(0, np.uint64),
        "turnaround.sum_ns": np.empty(0, np.uint64),
        "turnaround.hist": np.empty((0, SLOTS), np.uint64),
    },
)
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
        self._before = EMPTY
        self._folded = EMPTY

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Turnaround":
        """Load, attach, and follow the server sockets that are open already."""
        kernel.require_tracepoints("sk_data_ready", "sock_send_length", "inet_sock_set_state")
        bpf = open_object(cls.image(), kernel)
        share(bpf, limits.shards, ports=limits.max_cgroups)
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
        if len(by_port) > self._ports.max_entries * FOLD_ABOVE:
            by_port = self._fold(by_port)
        self._before = by_port
        _, lost = self._lost.read()
        return Reading(
            {CGROUP: sum_by_cgroup(by_port, self._folded), "turnaround.port": by_port},
            dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True)),
        )

    def _fold(self, by_port: Table) -> Table:
        """Fold ports that went idle into their cgroup, and free their rows for new ones."""
        idle = idle_rows(by_port, self._before)
        self._folded = sum_by_cgroup(self._folded, by_port.take(idle))
        self._ports.delete(self._known[idle])
        return by_port.take(~idle)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._ports.delete(self._known[np.isin(self._known["cgroup"], ids)])
        self._folded = self._folded.take(~np.isin(self._folded.ids, ids))


def idle_rows(now: Table, before: Table) -> NDArray[np.bool_]:
    """Return which rows of `now` (by cgroup and port) are as they were `before`."""
    rows_before = zip(*_identities(before), strict=True)
    stood = set(rows_before)
    return np.array([row in stood for row in zip(*_identities(now), strict=True)], dtype=np.bool_)


def _identities(table: Table) -> tuple[list[int], ...]:
    columns = (table.keys["cgroup"], table.keys["port"], table.columns["turnaround.requests"])
    return tuple(column.tolist() for column in columns)


def sum_by_cgroup(*tables: Table) -> Table:
    """Add all rows of one cgroup together; the result has one row a cgroup, in order of id."""
    ids, row_of = np.unique(np.concatenate([table.ids for table in tables]), return_inverse=True)
    summed = {}
    for name in tables[0].columns:
        column = np.concatenate([table.columns[name] for table in tables])
        total = np.zeros((len(ids), *column.shape[1:]), dtype=column.dtype)
        np.add.at(total, row_of, column)
        summed[name] = total
    return Table({"cgroup": ids}, summed)
