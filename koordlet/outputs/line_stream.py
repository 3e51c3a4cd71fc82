"""A stream of lines on a descriptor, written without waiting for the reader."""

import errno
import os
import select
from collections import deque
from collections.abc import Iterable

from koordlet.agent.sinks import ReaderGone

KEPT_LINES = 4096


class LineStream:
    """Writes lines at once; lines that a slow reader has no room for are kept, the oldest dropped at a limit."""

    def __init__(self, descriptor: int, *, kept_lines: int = KEPT_LINES) -> None:
        self.dropped = 0
        """Lines dropped while the reader was slow."""
        self._descriptor = descriptor
        self._kept_lines = kept_lines
        self._waiting: deque[bytes] = deque()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, lines: Iterable[bytes] = ()) -> None:
        """Add lines and write as many as the reader has room for. Raises ReaderGone, even with nothing to write."""
        for line in lines:
            self._waiting.append(line + b"\n")
        while len(self._waiting) > self._kept_lines:
            self._waiting.popleft()
            self.dropped += 1
        while self._has_room() and self._waiting:
            self._write(self._waiting.popleft())

    def _has_room(self) -> bool:
        ready = dict(self._poll.poll(0)).get(self._descriptor, 0)
        if ready & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            raise ReaderGone
        return bool(ready & select.POLLOUT)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EBADF, errno.EIO):
                raise ReaderGone from error
            raise
