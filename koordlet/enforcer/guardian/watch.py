"""What the guardian knows of its agent and what follows from it. Pure: lines and times in, a duty out.

The agent writes a line to the guardian's pipe: `beat` after each completed tick and before the first one sets
anything, `eased` when no tick is completed and it has ended its actions for that, `over SECONDS` when it ends and
leaves its actions to a successor until that moment of the monotonic clock, `bye` when it has restored them itself. The
end of the pipe without either of the last two is the death of the agent.
"""

import math
from enum import Enum

_RETRY_SECONDS = (1.0, 30.0)
"""Time until an attempt that left something is made again: the first, which doubles each time, and the longest."""


class Duty(Enum):
    """What the guardian has to do."""

    WAIT = "wait"
    RESTORE_BESIDE = "restore beside"
    """The agent lives and completes no tick: restore, and go on watching."""
    RESTORE = "restore"
    """The agent is gone, and no successor took its actions over in time: restore, and end."""
    END = "end"


class Watch:
    """One agent as seen from its pipe. Times are seconds of the monotonic clock."""

    def __init__(self, pause_seconds: float, now: float, *, first_until: float = -math.inf) -> None:
        """`pause_seconds` without a completed tick are a hang, but not before `first_until` while none has begun."""
        self._pause_seconds = pause_seconds
        self._first_until = first_until
        self._beat = now
        self._is_restored = False
        self._attempt_at = now
        self._retry_seconds = _RETRY_SECONDS[0]
        self._has_left = False
        self._is_dead = False
        self._deadline: float | None = None

    def take(self, line: str, now: float) -> None:
        """Take a line; what is none is ignored."""
        word, _, rest = line.strip().partition(" ")
        if word == "beat":
            self._beat, self._is_restored, self._first_until = now, False, -math.inf
            self._attempt_at, self._retry_seconds = now, _RETRY_SECONDS[0]
        elif word == "eased":
            self._is_restored = True
        elif word == "bye":
            self._has_left = True
        elif word == "over":
            try:
                self._deadline = float(rest)
            except ValueError:
                return

    def take_end(self) -> None:
        """Take the end of the pipe."""
        self._is_dead = True

    def note_restored(self) -> None:
        """Note that the duty to restore beside the agent is done."""
        self._is_restored = True

    def note_left(self, now: float) -> None:
        """Note that an attempt to restore beside the agent left something: it is made again, if no line comes."""
        self._attempt_at = now + self._retry_seconds
        self._retry_seconds = min(self._retry_seconds * 2, _RETRY_SECONDS[1])

    @property
    def is_handed_over(self) -> bool:
        """True while a successor may come."""
        return self._deadline is not None

    def duty(self, now: float) -> Duty:
        """Return what is to be done."""
        if self._has_left:
            return Duty.END
        if self._deadline is not None:
            return Duty.RESTORE if now >= self._deadline else Duty.WAIT
        if self._is_dead:
            return Duty.RESTORE
        if not self._is_restored and now >= self._hang_at:
            return Duty.RESTORE_BESIDE
        return Duty.WAIT

    def wait_seconds(self, now: float) -> float | None:
        """Time until the duty may change by itself; None: only with a line."""
        if self._deadline is not None:
            return max(self._deadline - now, 0.0)
        return None if self._is_restored else max(self._hang_at - now, 0.0)

    @property
    def _hang_at(self) -> float:
        """Moment of the next attempt to restore beside the agent, if no line comes."""
        return max(self._beat + self._pause_seconds, self._first_until, self._attempt_at)
