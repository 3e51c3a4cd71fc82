"""Outages of the API server, from the silence of all watches. No clock, no I/O."""

from controllers.runtime.view import NEVER


class Outages:
    """Whether the API server is away, and since when it has been heard without a gap.

    A process that starts counts as one that hears again: what came before, an outage among it, it cannot know.
    """

    def __init__(self, outage_seconds: float) -> None:
        self.away = False
        self.heard_since_seconds = NEVER
        """Seconds since the epoch; minus infinity until `begin`."""
        self._outage_seconds = outage_seconds

    def begin(self, now: float) -> None:
        """Note that the first lists are in."""
        self.heard_since_seconds = now

    def observe(self, silent_seconds: float, now: float) -> bool:
        """Note how long all watches have been silent; returns whether an outage began or ended."""
        away = silent_seconds > self._outage_seconds
        changed = away != self.away
        if changed and not away:
            self.heard_since_seconds = now
        self.away = away
        return changed
