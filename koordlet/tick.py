"""One tick as a value: the newest pair of frames, their delta, and the judge's answer to them.

The loop (`koordlet/agent/loop.py`) makes it once and hands it to the control loop and to every sink, so that a pair of
frames is subtracted once and has one meaning for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from api.verdicts import Verdict
from api.window import Delta, Window
from detector.judging.signals import Turnarounds


@dataclass(frozen=True, slots=True)
class Tick:
    """Frames and verdicts of one interval."""

    window: Window
    """The newest frame and the one before it."""
    delta: Delta
    """Growth of the cgroup table over the window."""
    verdicts: Sequence[Verdict] = ()
    """Verdicts that opened, changed or closed with the newest frame."""
    open_verdicts: tuple[Verdict, ...] = ()
    """All verdicts in effect, those of earlier ticks included."""
    turnarounds: Turnarounds | None = None
    """Requests of the newest frame with their baselines; None where none are measured or judging failed."""

    @classmethod
    def of(
        cls,
        window: Window,
        verdicts: Sequence[Verdict] = (),
        open_verdicts: tuple[Verdict, ...] = (),
        turnarounds: Turnarounds | None = None,
    ) -> "Tick":
        """The tick of the last two frames of a window. Raises ValueError with fewer than two."""
        pair = Window(window.frames[-2:])
        return cls(pair, pair.delta(), verdicts, open_verdicts, turnarounds)
