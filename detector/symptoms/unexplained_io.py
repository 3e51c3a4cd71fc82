"""Stalls on IO that no disk of this node explains: a network or user file system, a device that holds IO back."""

from typing import ClassVar

import numpy as np

from detector.rules import Rule
from detector.symptom import Signal, Symptom
from detector.view import View

SEEN = (
    "blockio.queue_ns",
    "blockio.device_ns",
    "blockio.throttle_ns",
    "blockio.excess_ns",
    "blockio.stalled_ns",
)
"""Time of block IO, that of IO under way included."""


class UnexplainedIo(Symptom):
    """Pressure stall information less what the blockio probe sees. Only where both measure; names no culprit.

    Only the cgroup's own block IO explains its stalls: a second of IO by tasks in the root cgroup is none in which this
    one waited. Pressure of a parent is its children's, so only leaves are judged.
    """

    resource: ClassVar[str] = "pressure"
    cause: ClassVar[str] = "io"
    columns: ClassVar[tuple[str, ...]] = ("pressure.io_some_us", *SEEN)
    # A client of a network file system waits for much of the time, so only nearly all of it is told. What one tick
    # lacks of one measure, the next has too much, so that three in a row are needed.
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.8, ticks=3, of_ticks=3)

    def sense(self, view: View) -> Signal | None:
        """Seconds in which some thread stalled, less its own of block IO; a remainder, so never a confident one."""
        seen = view.total(*SEEN)
        if seen is None or not view.has("pressure.io_some_us"):
            return None
        lost = np.maximum(np.minimum(view.rate("pressure.io_some_us"), 1.0) - np.nan_to_num(seen), 0.0)
        return Signal(np.where(view.tree.leaves, lost, np.nan), measured=False)
