"""Interrupts that take CPU time on top of running threads."""

from typing import ClassVar

from api.verdicts import KERNEL
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class IrqTheft(Symptom):
    """The kernel is the answer; whose packets caused it is not seen."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "irq"
    columns: ClassVar[tuple[str, ...]] = (
        "cpu.irq_ns",
        "cpu.softirq_ns",
        "net.softirq_rx_ns",
    )
    blame: ClassVar[BlameSource] = BlameSource(named=KERNEL)

    def sense(self, view: View) -> Signal | None:
        """Seconds taken."""
        lost = view.total("cpu.irq_ns", "cpu.softirq_ns")
        return None if lost is None else Signal(lost)
