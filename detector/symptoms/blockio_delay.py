"""Block IO that waits behind the IO of others."""

from typing import ClassVar

from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class BlockioDelay(Symptom):
    """Time behind own IO only does not count. A sum over IOs: sixteen in flight can lose sixteen seconds a second."""

    resource: ClassVar[str] = "blockio"
    cause: ClassVar[str] = "delay"
    columns: ClassVar[tuple[str, ...]] = (
        "blockio.queue_ns",
        "blockio.excess_ns",
        "blockio.self_ns",
    )
    blame: ClassVar[BlameSource] = BlameSource(table="blockio.blame")
    default_rule: ClassVar[Rule | None] = Rule(name="blockio", threshold=0.1, qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """Queue and excess disk time with the IO of others ahead."""
        lost = view.lost_to_others("blockio:queue", "blockio:device")
        return None if lost is None else Signal(view.by_others("blockio.blame", lost))
