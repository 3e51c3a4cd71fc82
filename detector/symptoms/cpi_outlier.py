"""More cycles per instruction than is usual, for a reason that the counters at hand do not show."""

from typing import ClassVar

from detector.rules import BEST_EFFORT_THRESHOLDS, UNUSUAL_OF_TICKS, UNUSUAL_TICKS, Rule
from detector.symptom import BlameSource, Signal, Symptom, ratio, slowed
from detector.view import View


class CpiOutlier(Symptom):
    """Against the workload's own baseline at this load. Culprits are correlated by their CPU usage."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "cpi"
    columns: ClassVar[tuple[str, ...]] = ("cpu.oncpu_ns", "pmu.cycles", "pmu.instructions")
    blame: ClassVar[BlameSource] = BlameSource(suspects="cpu.oncpu_ns")
    group: ClassVar[str] = "cycles"
    default_rule: ClassVar[Rule | None] = Rule(
        name="cpi",
        threshold=0.1,
        qos_thresholds=BEST_EFFORT_THRESHOLDS,
        unless_measured=("cache_pressure",),
        ticks=UNUSUAL_TICKS,
        of_ticks=UNUSUAL_OF_TICKS,
    )

    def sense(self, view: View) -> Signal | None:
        """Time on CPU times `1 - usual CPI / CPI`, where the CPI is unusual."""
        if not view.judgements or not view.has(*self.columns):
            return None
        cpi = ratio(view.rate("pmu.cycles"), view.rate("pmu.instructions"))
        lost = view.rate("cpu.oncpu_ns") * slowed(view, cpi)
        return Signal(lost, {"cpi": cpi, "usual_cpi": view.expected("cpi")}, measured=False)
