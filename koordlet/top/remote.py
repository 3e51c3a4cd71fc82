"""Measurements and verdicts of another agent for the live view, followed by a thread that connects again."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from api.frame import Frame
from api.verdicts import Verdict
from api.window import Window

RETRY_SECONDS = 2.0


class FrameHistory(Protocol):
    """The part of the agent's frame store that the view needs."""

    def append(self, frame: Frame) -> None:
        """Add the newest frame."""

    def window(self, seconds: float | None = None) -> Window | None:
        """Return the window that ends with the newest frame."""


class RemoteAgent:
    """What another agent measures: `window` and `open_verdicts` never wait for it.

    `frames` opens a stream, `verdicts` asks for the open ones; both raise `failure` where the agent does not answer.
    """

    def __init__(
        self,
        frames: Callable[[], Iterator[Frame]],
        verdicts: Callable[[], Sequence[Verdict]],
        store: Callable[[], FrameHistory],
        failure: type[Exception],
    ) -> None:
        self.open_verdicts: Sequence[Verdict] = ()
        self.problem = ""
        """Why there is nothing new; empty while the agent answers."""
        self._frames = frames
        self._verdicts = verdicts
        self._make_store = store
        self._store = store()
        self._failure = failure
        self._lock = threading.Lock()
        self._is_new = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="remote-agent", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which waits for a frame at the most."""
        self._stop.set()

    def window(self, seconds: float) -> Window | None:
        """Return the window of the last `seconds`, once for each new frame."""
        with self._lock:
            if not self._is_new:
                return None
            self._is_new = False
            return self._store.window(seconds)

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                for frame in self._frames():
                    self._take(frame)
                    if self._stop.is_set():
                        return
            except self._failure as error:
                self.problem = str(error)
                # Another agent may answer next: its counters are no continuation of these.
                with self._lock:
                    self._store = self._make_store()
            self._stop.wait(RETRY_SECONDS)

    def _take(self, frame: Frame) -> None:
        self.open_verdicts = self._verdicts()
        with self._lock:
            self._store.append(frame)
            self._is_new = True
        self.problem = ""
