"""The thread that looks after actions beside the tick: it ends leases that no tick renews, so that a tick that hangs on
a disk keeps no action, and sets again what systemd set back."""

import logging
import threading
from collections.abc import Callable

from koordlet.host.scheduling import come_promptly

_log = logging.getLogger(__name__)

_LONGEST_POLL_SECONDS = 1.0


class LeaseThread:
    """Calls `look_after` a few times in each lease, with the lock of the enforcer's steps."""

    def __init__(
        self,
        lock: threading.Lock,
        look_after: Callable[[], bool],
        pause_seconds: float,
        on_stopped: Callable[[], None],
    ) -> None:
        """`look_after` returns whether ticks have stopped for `pause_seconds` and left nothing; `on_stopped` is told
        each time, with the lock, so that no step begins between what was found and what is told.

        A step that hangs holds the lock: then the guardian restores.
        """
        self._lock = lock
        self._look_after = look_after
        self._on_stopped = on_stopped
        self._poll_seconds = min(pause_seconds / 8, _LONGEST_POLL_SECONDS)
        self._stop = threading.Event()
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread. Idempotent."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        come_promptly()
        while not self._stop.wait(self._poll_seconds):
            try:
                self._look()
            except Exception:  # noqa: BLE001 - it must look again; counted, logged once
                self.failures += 1
                if self.failures == 1:
                    _log.exception("actions cannot be looked after beside the tick; trying again")

    def _look(self) -> None:
        if not self._lock.acquire(timeout=self._poll_seconds):
            return
        try:
            if self._look_after():
                self._on_stopped()
        finally:
            self._lock.release()
