"""Slower progress as CPI2 defines it: three outliers of cycles per instruction within five minutes."""

from typing import ClassVar

from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class Cpi2(Symptom):
    """Only where the settings ask for it. Victims, samples and antagonists are those of `detector.cpi2.published`."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "cpi2"
    columns: ClassVar[tuple[str, ...]] = ("cpu.oncpu_ns", "pmu.cycles", "pmu.instructions")
    blame: ClassVar[BlameSource] = BlameSource(published=True)
    group: ClassVar[str] = "cycles"
    default_rule: ClassVar[Rule | None] = Rule(qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """Cores used times `1 - mean CPI / CPI`, by the last sample, while it is an anomaly; 0 while it is none."""
        sampled = view.cpi2
        if sampled is None:
            return None
        evidence = {"cpi": sampled.cpi, "mean_cpi": sampled.mean, "cpi_threshold": sampled.threshold}
        return Signal(sampled.lost, evidence, measured=False)
