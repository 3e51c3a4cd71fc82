"""Block IO that a disk does not answer."""

from typing import ClassVar

from detector.rules import Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class BlockioStalled(Symptom):
    """Outstanding for more than a second on a disk that ended no IO meanwhile: hung, or its path is gone.

    The disk's doing, whatever IO is ahead, so no culprit is named. A second a second for each IO.
    """

    resource: ClassVar[str] = "blockio"
    cause: ClassVar[str] = "stalled"
    columns: ClassVar[tuple[str, ...]] = ("blockio.stalled_ns",)
    blame: ClassVar[BlameSource] = BlameSource()
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.5, ticks=1, of_ticks=1)

    def sense(self, view: View) -> Signal | None:
        """Seconds that IOs have been outstanding, a sum over IOs."""
        lost = view.total("blockio.stalled_ns")
        return None if lost is None else Signal(lost)
