"""A service that answers later than is usual for it at this rate of requests."""

from typing import ClassVar

import numpy as np

from detector.rules import BEST_EFFORT_THRESHOLDS, UNUSUAL_OF_TICKS, UNUSUAL_TICKS, Rule
from detector.symptom import BlameSource, Signal, Symptom, ratio
from detector.view import View

LATE_SIGMAS = 3.0
"""Spreads above the usual turnaround from which answers are late, where they are also later than all but a hundredth of
the ordinary ticks."""


class Turnaround(Symptom):
    """Delay that the service's clients see. Its causes and culprits are those of the cgroup's other symptoms.

    Usual is the workload's turnaround at this load, so a surge of its own requests is compared with other surges.
    """

    resource: ClassVar[str] = "service"
    cause: ClassVar[str] = "turnaround"
    columns: ClassVar[tuple[str, ...]] = ("turnaround.requests", "turnaround.sum_ns")
    blame: ClassVar[BlameSource] = BlameSource(explained=True)
    default_rule: ClassVar[Rule | None] = Rule(
        threshold=0.1, qos_thresholds=BEST_EFFORT_THRESHOLDS, ticks=UNUSUAL_TICKS, of_ticks=UNUSUAL_OF_TICKS
    )

    def sense(self, view: View) -> Signal | None:
        """Seconds of all requests together beyond the usual turnaround."""
        if "turnaround" not in view.judgements or not view.has(*self.columns):
            return None
        usual = view.expected("turnaround")
        took = ratio(view.rate("turnaround.sum_ns"), view.rate("turnaround.requests"))
        excess = view.rate("turnaround.requests") * np.maximum(took - usual, 0.0)
        late = (view.sigmas("turnaround") >= LATE_SIGMAS) & (took > view.upper("turnaround"))
        lost = np.where(late, excess, 0.0)
        evidence = {"turnaround_seconds": took, "usual_turnaround_seconds": usual}
        return Signal(np.where(np.isnan(usual), np.nan, lost), evidence)
