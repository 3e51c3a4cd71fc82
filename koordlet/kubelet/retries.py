"""Back-off of one source, and warnings that are written once for each failure. Clocks are passed in."""

import logging
import threading
from random import Random

INITIAL_SECONDS = 1.0
MAXIMUM_SECONDS = 60.0
_MAX_NOTED = 256


class Retry:
    """Times at which a source that failed is asked again: doubling delays with jitter, 60 s at most."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0
        self._due_seconds = float("-inf")

    def is_due(self, now_seconds: float) -> bool:
        """Return whether to ask."""
        return now_seconds >= self._due_seconds

    def failed(self, now_seconds: float) -> None:
        """Note a failure."""
        self._due_seconds = now_seconds + self.delay_seconds(self._failures)
        self._failures += 1

    def succeeded(self) -> None:
        """Note an answer."""
        self._failures = 0
        self._due_seconds = float("-inf")

    def wait_seconds(self, now_seconds: float) -> float:
        """Return the time until it is due."""
        return max(self._due_seconds - now_seconds, 0.0)

    def delay_seconds(self, failures: int) -> float:
        """Return the delay after so many failures in a row before this one."""
        full = min(INITIAL_SECONDS * 2.0 ** min(failures, 16), MAXIMUM_SECONDS)
        return full * (1.0 - 0.5 * self._random.random())


class Complaints:
    """Warnings, each written once until what it is about works again; for several threads."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._noted: dict[str, str] = {}
        self._lock = threading.Lock()

    def unsupported(self, name: str, error: Exception) -> None:
        """Warn that a source does not answer, with the remedy where the error has one."""
        remedy = getattr(error, "remedy", "")
        self.note(name, f"{error}{'; ' if remedy else ''}{remedy}", again="; trying again")

    def note(self, name: str, text: str, *, again: str = "") -> None:
        """Warn, unless this text was the last about this name."""
        with self._lock:
            if self._noted.get(name) == text:
                return
            if len(self._noted) >= _MAX_NOTED:
                self._noted.pop(next(iter(self._noted)))
            self._noted[name] = text
        self._log.warning("%s%s", text if name == text else f"{name}: {text}", again)

    def settled(self, name: str) -> None:
        """Note that it works."""
        with self._lock:
            was_noted = self._noted.pop(name, None) is not None
        if was_noted:
            self._log.info("%s answers again", name)
