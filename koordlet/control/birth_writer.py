"""The thread that writes to cgroups before their first process: a birth waits for it for a tenth of a second only.

It takes the lock of the control steps, and a step may hang on a disk. A runtime that waits longer than its own limit
drops the plugin that it asked.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from api.intents import Setting
from koordlet.host.scheduling import come_promptly

_log = logging.getLogger(__name__)

WAIT_SECONDS = 0.1
_MOST_WAITING = 64


class _Birth:
    """Settings of one birth, and whether they were applied or given up."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.settings = settings
        self.is_given_up = False
        self.done = threading.Event()


class BirthWriter:
    """Applies settings of births in turn. What is not applied in time is left to the ticks, which ask for it too."""

    def __init__(self, apply: Callable[[Sequence[Setting]], None]) -> None:
        """`apply` may wait."""
        self._apply = apply
        self._waiting: queue.Queue[_Birth | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.late = 0
        """Births that went on without their settings."""

    def write(self, settings: Sequence[Setting]) -> bool:
        """Return whether the settings were applied in time; any thread may call."""
        birth = _Birth(settings)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="births", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait(birth)
        except queue.Full:
            birth.is_given_up = True
        if birth.is_given_up or not birth.done.wait(WAIT_SECONDS):
            birth.is_given_up = True
            self.late += 1
            return False
        return True

    def close(self) -> None:
        """End the thread, if it does not hang. Idempotent."""
        if self._thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return  # it hangs, and ends with the program
            self._thread.join(WAIT_SECONDS)

    def _run(self) -> None:
        come_promptly()
        while (birth := self._waiting.get()) is not None:
            if birth.is_given_up:
                continue
            try:
                self._apply(birth.settings)
            except Exception:  # noqa: BLE001 - no failure ends the thread that the next birth needs
                _log.exception("what a cgroup is born with could not be applied; the next tick asks for it")
            birth.done.set()
