"""Interrupts that take CPU time on top of running threads."""

from typing import ClassVar

from api.verdicts import KERNEL
from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class IrqTheft(Symptom):
    """The culprit is the kernel. Interrupts for packets that the cgroup sent or received itself do not count."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "irq"
    columns: ClassVar[tuple[str, ...]] = (
        "cpu.irq_ns",
        "cpu.softirq_ns",
        "net.softirq_own_ns",
        "cpu.held_ns",
        "cpu.oncpu_ns",
    )
    blame: ClassVar[BlameSource] = BlameSource(named=KERNEL)
    default_rule: ClassVar[Rule | None] = Rule(name="irq", qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """Seconds taken by others' interrupts."""
        lost = view.lost_to_others("cpu:irq")
        return None if lost is None else Signal(lost)
