"""The newest frame, for streams that each take it at their own pace: the tick waits for none, and none queues up."""

import threading

from api.frame import Frame


class NewestFrame:
    """One frame and its number; a reader that is slow misses frames in between."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frame: Frame | None = None
        self._number = 0
        self._closed = False

    def publish(self, frame: Frame) -> None:
        """Replace the frame; never waits for a reader."""
        with self._changed:
            self._frame, self._number = frame, self._number + 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def after(self, number: int, timeout_seconds: float) -> tuple[int, Frame | None] | None:
        """Wait for a frame newer than `number`; returns its number with it, no frame at the timeout, None when
        closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._number > number, timeout_seconds)
            if self._closed:
                return None
            return (self._number, self._frame) if self._number > number else (number, None)
