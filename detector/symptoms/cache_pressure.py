"""Slower progress for lack of last-level cache: more cycles and more misses than is usual."""

from typing import ClassVar

import numpy as np

from detector.symptom import BlameSource, Signal, Symptom, ratio, slowed
from detector.view import View


class CachePressure(Symptom):
    """Needs hardware counters and a baseline. The loss is the part of the time on CPU that the usual CPI would have
    saved."""

    resource: ClassVar[str] = "cache"
    cause: ClassVar[str] = "pressure"
    columns: ClassVar[tuple[str, ...]] = (
        "cpu.oncpu_ns",
        "pmu.cycles",
        "pmu.instructions",
        "pmu.llc_references",
        "pmu.llc_misses",
    )
    blame: ClassVar[BlameSource] = BlameSource(suspects="pmu.llc_misses")
    group: ClassVar[str] = "cycles"

    def sense(self, view: View) -> Signal | None:
        """Time on CPU times `1 - usual CPI / CPI`, where the miss ratio is above its usual value too."""
        if not view.judgements or not view.has(*self.columns):
            return None
        cpi = ratio(view.rate("pmu.cycles"), view.rate("pmu.instructions"))
        misses, usual = (
            ratio(view.rate("pmu.llc_misses"), view.rate("pmu.llc_references")),
            view.expected("llc_miss_ratio"),
        )
        lost = np.where(misses > usual, view.rate("cpu.oncpu_ns") * slowed(view, cpi), 0.0)
        unknown = np.isnan(slowed(view, cpi)) | np.isnan(usual)
        evidence = {"cpi": cpi, "usual_cpi": view.expected("cpi"), "llc_miss_ratio": misses}
        return Signal(np.where(unknown, np.nan, lost), evidence, measured=False)
