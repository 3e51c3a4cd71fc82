"""Packets that wait in devices' send queues."""

from typing import ClassVar

from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class NetworkDelay(Symptom):
    """Time behind own bytes only, and time that the sender asked for, do not count. A sum over packets."""

    resource: ClassVar[str] = "network"
    cause: ClassVar[str] = "delay"
    columns: ClassVar[tuple[str, ...]] = (
        "net.qdisc_delay_ns",
        "net.qdisc_self_ns",
        "net.qdisc_packets",
    )
    blame: ClassVar[BlameSource] = BlameSource(table="net.blame", suspects="net.qdisc_packets")
    default_rule: ClassVar[Rule | None] = Rule(name="network", threshold=0.2, qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """Seconds waited behind the bytes of others."""
        lost = view.lost_to_others("net:qdisc")
        return None if lost is None else Signal(view.by_others("net.blame", lost))
