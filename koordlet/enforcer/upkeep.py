"""Upkeep of actions between two steps: leases that end, what the kernel refused to restore, what systemd set back."""

import time

from koordlet.enforcer.events import EventLog, StepClock
from koordlet.enforcer.leases import Leases


class Upkeep:
    """Looks after actions for a thread beside the steps, with their lock, and knows when the last tick had its step."""

    def __init__(self, leases: Leases, log: EventLog, clock: StepClock, longest_seconds: float) -> None:
        self.longest_seconds = longest_seconds
        """Time between two ticks that no action outlives."""
        self.last_tick_seconds: float | None = None
        """Monotonic time of the step of the last tick; None before the first."""
        self._leases = leases
        self._log = log
        self._clock = clock

    @property
    def pause_seconds(self) -> float:
        """Time from the step of the last tick to the present step; 0 before the first."""
        last = self.last_tick_seconds
        return 0.0 if last is None else max(self._clock.monotonic_seconds - last, 0.0)

    def note_tick(self) -> None:
        """The present step is that of a tick, which is a sign of life."""
        self.last_tick_seconds = self._clock.monotonic_seconds

    def look_after(self) -> bool:
        """End actions whose lease is over because no step renewed it, restore what the kernel refused before, and set
        again what systemd set back; return whether nothing is left of a stopped tick.
        """
        now, last = time.monotonic(), self.last_tick_seconds
        actions = {owner: lease for owner, lease in self._leases.active.items() if not lease.setting.protocol_state}
        over = [owner for owner, lease in actions.items() if lease.end_seconds <= now]
        is_stopped = last is not None and now - last >= self.longest_seconds
        if over or self._leases.has_unrestored or (is_stopped and actions):
            self._clock.start_step(None)
            if is_stopped:
                self._leases.end_all_actions("no tick was completed in time")
            elif over:
                self._leases.end_actions(over, "the lease ended")
            else:
                self._leases.retry()
            self._log.end_step()
        elif actions:
            self._keep_actions()
        return is_stopped and not self._leases.has_unrestored

    def _keep_actions(self) -> None:
        """Set actions again between two steps.

        Neither step returns the events from here (set again, refused, given up), since strategies are told of what
        they asked for. The audit has them: it compares a refusal with what the last step had for the same file, and
        with what came since, and tells one that repeats once.
        """
        self._clock.start_step(None)
        began = self._log.pending
        self._leases.keep_actions()
        self._log.take_since(began)
