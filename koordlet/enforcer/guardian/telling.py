"""Telling the audit from a thread: while actions wait for a successor, a disk that hangs must not keep the guardian
from restoring them at their deadline."""

import queue
import threading
import time
from collections.abc import Sequence

from koordlet.enforcer.events import Clocks, EnforcerEvent, StepClock
from koordlet.enforcer.guardian.restoring import Left, event_log

_MOST_WAITING = 1000
"""Batches that wait for a disk; later ones are lost to the audit."""


class Teller:
    """Writes events to the audit, in order and with the time at which they were told; telling waits for no disk."""

    def __init__(self, left: Left) -> None:
        self._clock = StepClock()
        self._log = event_log(left, self._clock)
        self._batches: queue.SimpleQueue[tuple[Clocks, Sequence[EnforcerEvent]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def tell(self, events: Sequence[EnforcerEvent]) -> None:
        """Have these events written; what is refused again and again is told once."""
        if not events or self._batches.qsize() >= _MOST_WAITING:
            return
        self._batches.put((Clocks(time.monotonic(), time.time()), events))
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
            self._thread.start()

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            now, events = batch
            self._clock.start_step(now)
            try:
                for event in events:
                    self._log.emit(event)
            finally:
                # A successor may rename the file before the next one.
                self._log.close()
            self._log.end_step()

    def close(self, wait_seconds: float) -> None:
        """Let the thread end, and wait so long at most for what it has to write."""
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join(wait_seconds)
