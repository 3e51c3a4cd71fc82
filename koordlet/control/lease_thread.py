"""The thread that ends the leases of actions where no tick renews them: a tick that hangs on a disk keeps no action."""

import logging
import threading
from collections.abc import Callable

from koordlet.host.scheduling import come_promptly

_log = logging.getLogger(__name__)

_LONGEST_POLL_SECONDS = 1.0


class LeaseThread:
    """Calls `end_overdue` a few times in each lease, with the lock of the enforcer's steps."""

    def __init__(
        self,
        lock: threading.Lock,
        end_overdue: Callable[[], bool],
        pause_seconds: float,
        on_stopped: Callable[[], None],
    ) -> None:
        """`end_overdue` returns whether ticks have stopped for `pause_seconds` and left nothing; `on_stopped` is told
        each time, with the lock, so that no step begins between what was found and what is told.

        A step that hangs holds the lock: then the guardian restores.
        """
        self._lock = lock
        self._end_overdue = end_overdue
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
                    _log.exception("leases cannot be ended beside the tick; trying again")

    def _look(self) -> None:
        if not self._lock.acquire(timeout=self._poll_seconds):
            return
        try:
            if self._end_overdue():
                self._on_stopped()
        finally:
            self._lock.release()
