"""Network losses and delays of each cgroup's sockets: TCP retransmits, drops, send queue delay, receive softirq time.

A socket's cgroup is that of the task that last used it (opened, listened, sent, received), which is right on cgroup
v1, hybrid and v2; connections inherit their listener's until they are used. Where no task was seen using a socket, v2
hosts still know the cgroup that made it; elsewhere its events are counted under `lost`:
`net.unkeyed_packets` (retransmits and queued sends), `net.unkeyed_drops` (mostly packets without any socket) and
`net.unkeyed_rx_ns`.

- `net.tcp_retransmits`: segments sent again, those that failed to leave not counted.
- `net.drops`: packets freed as lost whose socket is known, at either end, and by reason in table `net.drop`; what a
  socket still held at its close is not a loss where the kernel says so (6.7 and later). A packet that was routed or
  bridged has no socket any more; it is its sender's where that is on this host, else that of the cgroup which uses the
  end of a veth pair where it arrived.
- `net.qdisc_delay_ns`, `net.qdisc_packets`, `net.qdisc_hist`: from a send's entry to a device with a queue to its first
  leave of that queue, at the latest to the driver's call. Packets that pass an empty queue by do not wait and are not
  counted, nor are those a queue splits (segmentation inside tbf).
- `net.qdisc_self_ns`: the part of that delay which no other cgroup is to blame for: with only own bytes ahead, or
  asked for by the sender itself (pacing by departure times, as TCP does under fq). The rest is shared out by bytes
  ahead when the packet came, in table `net.blame`.
- `net.softirq_rx_ns`: of receive interrupts, from a packet's entry into the stack to the next packet's, when it
  reached a socket. The driver's part before the first packet, and packets for a socket busy in a system call (they are
  processed later, in that call), are unkeyed. Before 6.3 only TCP packets are seen to arrive.
- `net.softirq_own_ns`: of receive interrupts on top of the cgroup's own tasks, what served packets that it sent itself
  (over loopback or a veth pair) or that reached its sockets. Packets of which neither end is known count as its own up
  to as much again: they are mostly those for a socket busy in a system call.
- `net.softirq_deferred_ns`: of receive interrupts that kernel threads handled (ksoftirqd, where there are many), what
  served packets that the cgroup sent itself or that reached its sockets. Its threads wait for such a CPU by their own
  doing.
- `net.backlog_delay_ns`, `net.backlog_packets`: the wait in a CPU's backlog, over loopback, a pair, or where one CPU
  gives packets to another. It belongs to the socket that the packet reached, else to its sender.

Pods behind a veth or netkit pair: a packet crosses the pair with its socket and loses it in the host's IP stack. Its
sender is known as long as the same CPU handles it (routed, bridged, or wrapped for an overlay), else by the interface
it came in by; while packets are captured on a bridge's port, which copies them, not at all.

Cost by the kernel's BPF statistics (an empty program shows 58 ns) under `redis-benchmark -t get -n 40000`: 62 to 137 ns
a program, nine of them for each packet over loopback, entry and exit of soft interrupts included.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from api.histogram import SLOTS
from probes.bpf_object import BpfObject
from probes.pairs import PairLedger
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object, sum_per_cpu
from probes.shared_maps import share

U64 = np.dtype(np.uint64)
CGROUP_RECORD = np.dtype(
    [
        ("retransmits", U64),
        ("drops", U64),
        ("rx_ns", U64),
        ("own_rx_ns", U64),
        ("unkeyed_rx_ns", U64),
        ("deferred_ns", U64),
        ("backlog_ns", U64),
        ("backlog_packets", U64),
        ("qdisc_ns", U64),
        ("qdisc_self_ns", U64),
        ("qdisc_packets", U64),
        ("qdisc_hist", U64, (SLOTS,)),
    ]
)
OWNER_RECORD = np.dtype([("cgroup", U64)])
PAIR_RECORD = np.dtype([("victim", U64), ("culprit", U64)])
DROP_RECORD = np.dtype([("cgroup", U64), ("reason", U64)])
LOST_PLACES = (
    "net.cgroup",
    "net.reason",
    "net.stamp",
    "net.blame_ns",
    "net.unkeyed_packets",
    "net.unkeyed_drops",
    "net.unkeyed_rx_ns",
)
REASON_WIDTH = 40
COLUMNS = {
    "net.tcp_retransmits": "retransmits",
    "net.drops": "drops",
    "net.softirq_rx_ns": "rx_ns",
    "net.softirq_deferred_ns": "deferred_ns",
    "net.backlog_delay_ns": "backlog_ns",
    "net.backlog_packets": "backlog_packets",
    "net.qdisc_delay_ns": "qdisc_ns",
    "net.qdisc_self_ns": "qdisc_self_ns",
    "net.qdisc_packets": "qdisc_packets",
    "net.qdisc_hist": "qdisc_hist",
}
"""Column to field of the record."""

_REQUIRED = {
    "inet_sock_set_state": "on_state",
    "tcp_rcv_space_adjust": "on_receive",
    "softirq_entry": "on_softirq_entry",
    "softirq_exit": "on_softirq_exit",
    "net_dev_queue": "on_send",
    "qdisc_enqueue": "on_enqueue",
    "qdisc_dequeue": "on_dequeue",
    "net_dev_start_xmit": "on_start_xmit",
    "netif_receive_skb": "on_packet",
    "netif_rx": "on_backlog",
    "tcp_probe": "on_tcp_packet",
}
"""Tracepoint to the program that is the same on every kernel."""


class Net(BpfProbe):
    """Needs the network's tracepoints (kernel 5.15 and later) and socket storage."""

    name: ClassVar[str] = "net"
    records: ClassVar = {
        "net_cgroup": CGROUP_RECORD,
        "net_owner": OWNER_RECORD,
        "net_drop": DROP_RECORD,
        "net_pair": PAIR_RECORD,
    }

    def __init__(self, bpf: BpfObject, reasons: Mapping[int, str]) -> None:
        super().__init__(bpf)
        self._reasons = reasons
        self._drops = bpf.map("drops", DROP_RECORD, U64)
        self._known_drops = np.empty(0, dtype=DROP_RECORD)
        self._cgroups = bpf.map("cgroups", U64, CGROUP_RECORD)
        self._blame = bpf.map("blame", PAIR_RECORD, U64)
        self.pairs: PairLedger = PairLedger()
        self._lost = bpf.map("lost", np.dtype(np.uint32), U64)

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Net":
        """Load the variants that fit this kernel's tracepoints, find the owners of open sockets, attach."""
        kernel.require_tracepoints(*_REQUIRED, "tcp_retransmit_skb", "kfree_skb")
        wanted = [*_REQUIRED.values(), *cls._variants(kernel)]
        bpf = open_object(cls.image(), kernel)
        share(
            bpf,
            limits.shards,
            by_cgroup={"cgroups": limits.max_cgroups},
            drops=2 * limits.max_cgroups,
            blame=max(limits.max_pairs // 4, 1),
        )
        bpf.without(*set(bpf.program_names).difference(wanted, ["own_sockets"]))
        load(bpf)
        attach(bpf, *wanted)
        bpf.iterate("own_sockets")
        return cls(bpf, kernel.btf.enum_names("skb_drop_reason"))

    @staticmethod
    def _variants(kernel: Kernel) -> list[str]:
        """Programs whose tracepoint differs between kernels, by its number of arguments or its being there."""
        arguments = kernel.btf.tracepoint_arguments
        variants = [
            "on_retransmit_result" if len(arguments("tcp_retransmit_skb")) > 2 else "on_retransmit",
            "on_drop_received" if len(arguments("kfree_skb")) > 3 else "on_drop",
        ]
        if kernel.btf.has_tracepoint("sk_data_ready"):
            variants.append("on_data")
        return variants

    def read(self) -> Reading:
        ids, values = self._cgroups.read()
        ids = ids.copy()
        fields = sum_per_cpu(values, CGROUP_RECORD)
        dense: dict[str, NDArray[Any]] = {column: fields[field] for column, field in COLUMNS.items()}
        own = fields["own_rx_ns"]
        dense["net.softirq_own_ns"] = own + np.minimum(own, fields["unkeyed_rx_ns"])
        pairs, blamed = self._blame.read(drain=True)
        self.pairs.add(pairs["victim"], pairs["culprit"], blamed.sum(axis=1))
        _, lost = self._lost.read()
        return Reading(
            {
                CGROUP: Table({"cgroup": ids}, dense),
                "net.drop": self._by_reason(),
                "net.blame": self.pairs.table("net.blame_ns"),
            },
            dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True)),
        )

    def _by_reason(self) -> Table:
        keys, counts = self._drops.read()
        self._known_drops = keys.copy()
        names = [reason_name(value, self._reasons) for value in keys["reason"].tolist()]
        return Table(
            {"cgroup": self._known_drops["cgroup"].copy(), "reason": np.array(names, dtype=f"<U{REASON_WIDTH}")},
            {"net.drops": counts.sum(axis=1)},
        )

    def reserve(self, ids: NDArray[np.uint64]) -> int:
        return self._cgroups.reserve(ids)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)
        self.pairs.forget(ids)
        self._drops.delete(self._known_drops[np.isin(self._known_drops["cgroup"], ids)])


def reason_name(value: int, names: Mapping[int, str]) -> str:
    """A drop reason as the kernel spells it, in lower case without the prefix; a subsystem's own as a number."""
    name = names.get(value)
    return name.removeprefix("SKB_DROP_REASON_").lower()[:REASON_WIDTH] if name else f"{value:#x}"
