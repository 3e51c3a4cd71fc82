"""Messages to the scheduling thread, which waits for them here, or for answers to bindings elsewhere."""

import queue
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue of messages. Any thread puts, one takes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._wake: Callable[[], None] | None = None

    def put(self, message: T) -> None:
        """Add a message."""
        self._queue.put(message)
        wake = self._wake
        if wake is not None:
            wake()

    def empty(self) -> bool:
        """Return whether nothing waits."""
        return self._queue.empty()

    def take(self, wait_seconds: float = 0.0) -> T | None:
        """The next message; None when there is none within the time."""
        try:
            return self._queue.get(timeout=wait_seconds) if wait_seconds else self._queue.get_nowait()
        except queue.Empty:
            return None

    def wait_elsewhere(self, wait: Callable[[], None], wake: Callable[[], None]) -> None:
        """Call `wait`, unless a message is there; `wake` is called for one that comes meanwhile, and must end the wait.

        `wake` may be called before `wait` is, and after it has returned.
        """
        self._wake = wake
        try:
            if self._queue.empty():
                wait()
        finally:
            self._wake = None
