"""Hysteresis of verdicts: from ticks above thresholds to episodes that open, are held and close.

One opens when its rule is met in N of M ticks, and closes after a hold time. One that comes back soon after it closed
is held twice as long the next time, so that a pulsing culprit makes one verdict and not one a pulse.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.arrays import Flags

Bits = NDArray[np.uint64]
Times = NDArray[np.int64]
NEVER = -(2**62)
"""A time in nanoseconds before all others."""
SECOND_NS = 10**9
MAX_HOLD_NS = 60 * SECOND_NS
ONE_TICK = np.uint64(1)
"""Way by which marks of ticks, a bit each, move on with the next one."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When a rule opens and closes; the defaults are those of all rules (`detector/rules.py` explains them)."""

    ticks: int = 2
    of_ticks: int = 3
    hold_seconds: float = 10.0
    cooldown_seconds: float = 0.0


USUAL = Timing()
USUAL_CLOSE_RATIO = 0.5
"""Part of the threshold below which a loss lets a verdict close."""


@dataclass(slots=True)
class Episodes:
    """Arrays of shape (rules, cgroups); times are monotonic nanoseconds."""

    held: Bits
    """Ticks in which the rule was met, a bit each, the newest in bit 0."""
    harmed_ns: Times
    """Time at which the loss was last above the closing threshold."""
    closed_ns: Times
    """Time at which the last verdict closed."""
    hold_ns: Times
    """Time below the closing threshold after which the verdict closes."""
    is_open: Flags
    opened_ns: Times


def no_episodes(rules: int, cgroups: int) -> Episodes:
    """Return the state before the first tick."""
    shape = (rules, cgroups)
    return Episodes(
        held=np.zeros(shape, np.uint64),
        harmed_ns=np.full(shape, NEVER),
        closed_ns=np.full(shape, NEVER),
        hold_ns=np.zeros(shape, np.int64),
        is_open=np.zeros(shape, np.bool_),
        opened_ns=np.full(shape, NEVER),
    )


class Hysteresis:
    """The timing of some rules; in each tick call `see`, `close`, `may_open` and `open`, in this order."""

    def __init__(self, rules: Sequence[Timing]) -> None:
        self._masks = np.array([2**rule.of_ticks - 1 for rule in rules], dtype=np.uint64).reshape(-1, 1)
        self._hold_ns = _nanoseconds([rule.hold_seconds for rule in rules])
        self._cooldown_ns = _nanoseconds([rule.cooldown_seconds for rule in rules])

    def ticks_held(self, episodes: Episodes) -> Times:
        """Return in how many of their last `of_ticks` ticks the rules were met."""
        return np.asarray(np.bitwise_count(episodes.held & self._masks), dtype=np.int64)

    def is_one_burst(self, held: Bits, rested: Bits) -> Flags:
        """Return where, of the last `of_ticks` ticks, one at rest came before all in which the rule was met.

        A short burst of work that lies across two ticks is seen in both.
        """
        return np.asarray((rested & self._masks) > (held & self._masks))

    def cooldown_left_ns(self, episodes: Episodes, now_ns: int) -> Times:
        """Return the time until the rules may open again.

        One that closed as it opened is of an earlier run, which does not tell whether it closed.
        """
        left = np.maximum(self._cooldown_ns - (now_ns - episodes.closed_ns), 0)
        return np.where(episodes.closed_ns > episodes.opened_ns, left, 0)

    def see(self, episodes: Episodes, met: Flags, harmed: Flags, now_ns: int, undecided: Flags | None = None) -> None:
        """Take in a tick: where rules were met, and where a loss is too large for a verdict to close.

        It does not count among the ticks of what it leaves undecided.
        """
        held = (episodes.held << ONE_TICK) | met
        episodes.held = held if undecided is None else np.where(undecided, episodes.held, held)
        episodes.harmed_ns[met | harmed] = now_ns

    def close(self, episodes: Episodes, now_ns: int) -> Flags:
        """Close what was calm for its hold time, and return where."""
        calm = episodes.is_open.copy()
        calm[calm] = now_ns - episodes.harmed_ns[calm] >= episodes.hold_ns[calm]
        episodes.is_open[calm], episodes.closed_ns[calm] = False, now_ns
        return calm

    def may_open(self, episodes: Episodes, met: Flags, now_ns: int) -> Flags:
        """Return where a met rule has no open verdict and does not cool down."""
        found: Flags = met & ~episodes.is_open
        if found.any():
            found &= self.cooldown_left_ns(episodes, now_ns) == 0
        return found

    def open(self, episodes: Episodes, opening: Flags, now_ns: int) -> None:
        """Open there."""
        base = np.broadcast_to(self._hold_ns, opening.shape)[opening]
        soon = now_ns - episodes.closed_ns[opening] <= MAX_HOLD_NS
        longer = np.clip(2 * episodes.hold_ns[opening], base, np.maximum(base, MAX_HOLD_NS))
        episodes.hold_ns[opening] = np.where(soon, longer, base)
        episodes.is_open |= opening
        episodes.opened_ns[opening] = now_ns


def _nanoseconds(seconds: Sequence[float]) -> Times:
    return np.array([each * SECOND_NS for each in seconds], dtype=np.float64).astype(np.int64).reshape(-1, 1)
