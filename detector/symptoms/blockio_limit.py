"""Block IO held back by a limit."""

from typing import ClassVar

from api.verdicts import OWN_LIMIT
from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class BlockioLimit(Symptom):
    """The limit may be the cgroup's own or an ancestor's; the kernel does not report which."""

    resource: ClassVar[str] = "blockio"
    cause: ClassVar[str] = "limit"
    columns: ClassVar[tuple[str, ...]] = ("blockio.throttle_ns",)
    blame: ClassVar[BlameSource] = BlameSource(named=OWN_LIMIT)
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.2, qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """Seconds held back, a sum over IOs."""
        lost = view.total("blockio.throttle_ns")
        return None if lost is None else Signal(lost)
