"""Interrupts that take CPU time on top of running threads."""

from typing import ClassVar

import numpy as np

from api.verdicts import KERNEL
from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View

OWN_TRAFFIC_RATIO = 2.0
"""Interrupt time that a cgroup's own traffic explains, as a multiple of its packets' receive time: what is received is
answered, and over loopback and veth the sender handles what it sends. Of nginx and redis flat out, nothing is left."""


class IrqTheft(Symptom):
    """The culprit is the kernel; the receiver of the packets is not seen. Own traffic does not count."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "irq"
    columns: ClassVar[tuple[str, ...]] = (
        "cpu.irq_ns",
        "cpu.softirq_ns",
        "net.softirq_rx_ns",
    )
    blame: ClassVar[BlameSource] = BlameSource(named=KERNEL)
    default_rule: ClassVar[Rule | None] = Rule(name="irq", qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """Seconds taken beyond those that the cgroup's own traffic explains."""
        lost, own = view.lost_to_others("cpu:irq"), view.total("net.softirq_rx_ns")
        if lost is None or own is None:
            return None if lost is None else Signal(lost)
        return Signal(np.maximum(lost - OWN_TRAFFIC_RATIO * own, 0.0))
