"""Slower progress while others fill the memory bus: more cycles per instruction than is usual, and more traffic."""

from typing import ClassVar

import numpy as np

from detector.symptom import UNUSUAL_SIGMAS, BlameSource, Signal, Symptom, ratio, slowed
from detector.view import View


class MemoryBandwidth(Symptom):
    """Needs hardware counters, resctrl's monitors and a baseline; those whose traffic goes with it are correlated."""

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "bandwidth"
    columns: ClassVar[tuple[str, ...]] = (
        "cpu.oncpu_ns",
        "pmu.cycles",
        "pmu.instructions",
        "resctrl.mbm_total_bytes",
    )
    blame: ClassVar[BlameSource] = BlameSource(suspects="resctrl.mbm_total_bytes")
    group: ClassVar[str] = "cycles"

    def sense(self, view: View) -> Signal | None:
        """Time on CPU times `1 - usual CPI / CPI`, where others' memory traffic is unusual too."""
        if "others_memory_traffic" not in view.judgements or not view.has(*self.columns):
            return None
        cpi = ratio(view.rate("pmu.cycles"), view.rate("pmu.instructions"))
        slower, busy = slowed(view, cpi), view.sigmas("others_memory_traffic")
        lost = np.where(busy >= UNUSUAL_SIGMAS, view.rate("cpu.oncpu_ns") * slower, 0.0)
        evidence = {"cpi": cpi, "usual_cpi": view.expected("cpi")}
        return Signal(np.where(np.isnan(slower) | np.isnan(busy), np.nan, lost), evidence, measured=False)
