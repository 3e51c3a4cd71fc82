"""Slower progress while another cgroup runs on the core's other hardware thread."""

from typing import ClassVar

import numpy as np

from api.qos import QoSClass
from detector.rules import Rule
from detector.symptom import BlameSource, Signal, Symptom, ratio
from detector.view import View

LOSS_OF_EXPOSURE = 0.35
"""Assumed part of the exposed time that is lost where cycles per instruction are not measured: two threads that share a
core together get about 1.3 times the work of one done."""


class SmtSibling(Symptom):
    """Exposure is measured; its cost is an estimate."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "smt_sibling"
    columns: ClassVar[tuple[str, ...]] = ("cpu.smt_foreign_ns", "pmu.cycles", "pmu.instructions")
    blame: ClassVar[BlameSource] = BlameSource(table="smt.blame")
    group: ClassVar[str] = "cycles"
    default_rule: ClassVar[Rule | None] = Rule(name="smt", threshold=0.2, qos_thresholds={QoSClass.BE: 1.0})

    def sense(self, view: View) -> Signal | None:
        """Exposed time, times the part of it that goes lost by the baseline or by assumption."""
        if not view.has("cpu.smt_foreign_ns"):
            return None
        exposed = view.by_others("smt.blame", view.rate("cpu.smt_foreign_ns"))
        part = np.full(len(exposed), LOSS_OF_EXPOSURE)
        if view.has("pmu.cycles", "pmu.instructions"):
            cpi = ratio(view.rate("pmu.cycles"), view.rate("pmu.instructions"))
            slower = np.clip(1.0 - view.expected("cpi") / cpi, 0.0, 1.0)
            part = np.where(np.isfinite(slower), slower, part)
        return Signal(exposed * part, whole=exposed, measured=False)
