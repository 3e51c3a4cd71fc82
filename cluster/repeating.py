"""A thread that repeats a step, and waits longer while the API server refuses it."""

import logging
import threading
from collections.abc import Callable
from random import Random

from cluster.errors import ClusterError
from cluster.rate_limit import Backoff

_log = logging.getLogger(__name__)


class Repeating:
    """Thread that calls `step` at least `interval_seconds` apart, until it is stopped.

    A step that raises ClusterError or OSError is repeated after a delay that grows; the first failure of a row is
    logged.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], None],
        interval_seconds: float,
        backoff: Backoff,
        *,
        random: Random | None = None,
    ) -> None:
        self.failures = 0
        self._name = name
        self._step = step
        self._interval_seconds = interval_seconds
        self._backoff = backoff
        self._random = random or Random()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stop after the present step; idempotent, and no error before the start."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        in_a_row = 0
        while not self._stopping.is_set():
            try:
                self._step()
            except (ClusterError, OSError) as error:
                if not in_a_row:
                    _log.warning("%s: trying again: %s", self._name, error)
                self.failures += 1
                in_a_row += 1
            else:
                in_a_row = 0
            delay = self._backoff.delay_seconds(in_a_row - 1, self._random) if in_a_row else 0.0
            self._stopping.wait(max(delay, self._interval_seconds))
