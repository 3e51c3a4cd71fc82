"""Outages of the API server, from the silence of all watches. No clock, no I/O."""

from controllers.runtime.view import NEVER


class Outages:
    """Whether the API server is away, and since when it has been heard without a gap."""

    def __init__(self, outage_seconds: float) -> None:
        self.away = False
        self.heard_since_seconds = NEVER
        """Seconds since the epoch; minus infinity before the first outage."""
        self._outage_seconds = outage_seconds

    def observe(self, silent_seconds: float, now: float) -> bool:
        """Note how long all watches have been silent; returns whether an outage began or ended."""
        away = silent_seconds > self._outage_seconds
        changed = away != self.away
        if changed and not away:
            self.heard_since_seconds = now
        self.away = away
        return changed
