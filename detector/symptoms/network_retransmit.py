"""TCP segments that were dropped on this host and sent again: progress lost until they arrive."""

from typing import ClassVar

import numpy as np

from detector.rules import Rule
from detector.symptom import BlameSource, Signal, Symptom, ratio
from detector.view import View

SECONDS_EACH = 0.2
"""The kernel's least retransmission timeout (TCP_RTO_MIN): a bound, since fast retransmits take one round trip."""


class NetworkRetransmit(Symptom):
    """An estimate from counts, so never a confident one. What is lost beyond this host is no neighbour's doing."""

    resource: ClassVar[str] = "network"
    cause: ClassVar[str] = "retransmit"
    columns: ClassVar[tuple[str, ...]] = (
        "net.tcp_retransmits",
        "net.drops",
        "net.qdisc_delay_ns",
        "net.qdisc_self_ns",
        "net.qdisc_packets",
    )
    blame: ClassVar[BlameSource] = BlameSource(suspects="net.qdisc_packets")
    default_rule: ClassVar[Rule | None] = Rule(threshold=1.0)

    def sense(self, view: View) -> Signal | None:
        """At most so many seconds per second, summed over connections.

        A packet lost elsewhere is not dropped here; and one that a queue of own packets had no room for, as far as the
        wait in send queues was behind own bytes, is no other cgroup's doing.
        """
        if not view.has("net.tcp_retransmits", "net.drops"):
            return None
        here = np.minimum(view.rate("net.tcp_retransmits"), view.rate("net.drops"))
        others = view.lost_to_others("net:qdisc")
        if others is not None:
            here *= ratio(others, view.rate("net.qdisc_delay_ns"))
        return Signal(np.nan_to_num(here) * SECONDS_EACH, measured=False)
