"""What systemd is told of the agent: ready with the first tick, and alive with each one (`WatchdogSec=`)."""

from koordlet.host.service_manager import tell_systemd
from koordlet.tick import Tick


class ServiceNotices:
    """A sink of ticks; without systemd it does nothing."""

    def __init__(self) -> None:
        self._is_ready = False

    def step(self, _tick: Tick) -> None:
        """Send a notice."""
        tell_systemd("WATCHDOG=1" if self._is_ready else "READY=1\nWATCHDOG=1")
        self._is_ready = True
