"""Writes without a thread for each: requests go out over several connections, answers are collected later.

For one thread that has other work meanwhile, and writes that are safe to repeat: what is not answered with success is
given back to be sent again by `Client.send`, which finds out what became of it. With a thread for each write instead,
every step of each waits for the interpreter's lock, which the busy thread keeps for milliseconds at a time.
"""

import contextlib
import os
import queue
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cluster import errors

R = TypeVar("R")
T = TypeVar("T")

CHUNK_BYTES = 1 << 16
MAX_ANSWER_BYTES = 1 << 20
LATE_LOOK_SECONDS = 0.1
"""Interval of the look for connections whose answer is late."""
REOPEN_SECONDS = 1.0
"""Wait after a connection could not be opened."""


@dataclass(slots=True, eq=False)
class _Channel(Generic[R, T]):
    """A connection, and the write that it carries."""

    socket: socket.socket
    token: T | None = None
    request: R | None = None
    busy: bool = False
    deadline_seconds: float = 0.0
    received: bytearray = field(default_factory=bytearray)

    def read(self) -> int | None:
        """Take in what has come: the status of the answer, None while it is not whole.

        Raises OSError when the connection has ended, and ValueError for an answer that this does not read.
        """
        while True:
            try:
                piece = self.socket.recv(CHUNK_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return None
            if not piece:
                raise ConnectionResetError("connection ended")
            self.received += piece
            length = answer_length(self.received)
            if length is not None and len(self.received) >= length:
                if len(self.received) > length:
                    raise ValueError("more than one answer")
                status = int(self.received[9:12])
                self.received.clear()
                return status
            if len(self.received) > MAX_ANSWER_BYTES:
                raise ValueError("answer is too long")


def answer_length(received: bytes | bytearray) -> int | None:
    """Return the length of the answer of which this is the beginning; None while the head is not whole.

    Raises ValueError for answers that are not of one piece with its length in the head, or after which the connection
    cannot be used.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    status, *lines = bytes(received[:end]).split(b"\r\n")
    if status[:9] != b"HTTP/1.1 " or status[9:10] not in b"2345" or status[9:12] in (b"204", b"304"):
        raise ValueError(f"answer begins with {status[:40]!r}")
    length = None
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length":
            length = value.strip()
        elif name == b"transfer-encoding" or (name == b"connection" and value.strip().lower() == b"close"):
            raise ValueError("answer in parts, or the last one")
    if length is None or not length.isdigit():
        raise ValueError("answer without a length")
    return end + 4 + int(length)


class QuickWrites(Generic[R, T]):
    """Sends writes and collects their answers, all in one thread, which alone may call it.

    `open_socket` returns a connected socket and is called in a thread of its own; `encoded` returns a request as it is
    sent, None for one that may not be sent now. A connection whose answer has not come within `timeout_seconds` is
    ended, also while nothing is collected: what it carries must not reach the server once another process leads.
    `observe` is told of each request that went out: status (0 without an answer) and seconds.
    """

    def __init__(
        self,
        open_socket: Callable[[], socket.socket],
        encoded: Callable[[R], bytes | None],
        connections: int,
        timeout_seconds: float,
        observe: Callable[[R, int, float], None] = lambda _request, _status, _seconds: None,
    ) -> None:
        self.in_flight = 0
        """Writes that are not answered."""
        self._open_socket = open_socket
        self._encoded = encoded
        self._most = connections
        self._timeout = timeout_seconds
        self._observe = observe
        self._epoll = select.epoll()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._woken, select.EPOLLIN)
        self._channels: dict[int, _Channel[R, T]] = {}
        self._idle: list[_Channel[R, T]] = []
        self._opened: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._opening = threading.Event()
        self._next_open = 0.0
        self._closed = threading.Event()
        if connections:
            threading.Thread(target=self._end_late, name="late-writes", daemon=True).start()

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._channels)

    def has_room(self) -> bool:
        """Return whether a connection is free; where none is, another one is opened meanwhile, up to their number."""
        self._take_opened()
        if not self._idle:
            self._open_another()
        return bool(self._idle)

    def send(self, token: T, request: R) -> bool:
        """Send a write over a free connection (see `has_room`); False where it was not sent, or not whole."""
        data = self._encoded(request)
        if data is None or not self._idle:
            return False
        channel = self._idle.pop()
        channel.deadline_seconds = time.monotonic() + self._timeout
        channel.token, channel.request, channel.busy = token, request, True
        try:
            sent = channel.socket.send(data)
        except OSError:  # a buffer that is full included
            sent = 0
        if sent < len(data):
            self._drop(channel)
            return False
        self.in_flight += 1
        return True

    def collect(self, wait_seconds: float = 0.0) -> list[tuple[T, bool]]:
        """The writes that were answered, each with whether that was a success. Waits for one, or for `wake`.

        False says nothing of whether the write was made.
        """
        done: list[tuple[T, bool]] = []
        if not self._channels:
            return done
        for descriptor, _ in self._epoll.poll(wait_seconds):
            if descriptor == self._woken:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._woken)
                continue
            channel = self._channels[descriptor]
            try:
                status = channel.read()
                if status is not None and not channel.busy:
                    raise ValueError("answer to nothing")
            except (OSError, ValueError):
                self._finish(channel, 0, done)
                self._drop(channel)
                continue
            if status is not None:
                self._finish(channel, status, done)
                self._idle.append(channel)
        return done

    def wake(self) -> None:
        """End the wait of `collect`, or of the next one; the only thing that other threads may call."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Close all connections; what is in flight stays unknown. `wake` must not be called any more."""
        self._closed.set()
        self._take_opened()
        for channel in list(self._channels.values()):
            self._drop(channel)
        self._epoll.close()
        os.close(self._woken)

    def _finish(self, channel: _Channel[R, T], status: int, done: list[tuple[T, bool]]) -> None:
        if channel.busy:
            assert channel.token is not None
            assert channel.request is not None
            self._observe(channel.request, status, time.monotonic() - channel.deadline_seconds + self._timeout)
            done.append((channel.token, 200 <= status < 300))
            channel.token, channel.request, channel.busy = None, None, False
            self.in_flight -= 1

    def _drop(self, channel: _Channel[R, T]) -> None:
        del self._channels[channel.socket.fileno()]
        if channel in self._idle:
            self._idle.remove(channel)
        channel.socket.close()  # leaves the epoll set too

    def _end_late(self) -> None:
        """End connections whose answer is late; `collect` finds them ended."""
        while not self._closed.wait(LATE_LOOK_SECONDS):
            now = time.monotonic()
            for channel in self._channels.copy().values():
                if channel.busy and channel.deadline_seconds <= now:
                    # Not the TLS socket's own method, which would take its state from under a read.
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(channel.socket, socket.SHUT_RDWR)

    def _take_opened(self) -> None:
        while True:
            try:
                opened = self._opened.get_nowait()
            except queue.Empty:
                return
            if self._closed.is_set():
                opened.close()
                continue
            opened.setblocking(False)
            channel: _Channel[R, T] = _Channel(opened)
            self._channels[opened.fileno()] = channel
            self._epoll.register(opened.fileno(), select.EPOLLIN)
            self._idle.append(channel)

    def _open_another(self) -> None:
        now = time.monotonic()
        if len(self._channels) >= self._most or self._opening.is_set() or now < self._next_open:
            return
        self._opening.set()
        try:
            threading.Thread(target=self._open, name="quick-writes", daemon=True).start()
        except RuntimeError:  # no more threads
            self._next_open = now + REOPEN_SECONDS
            self._opening.clear()

    def _open(self) -> None:
        try:
            opened = self._open_socket()
            self._opened.put(opened)
            if self._closed.is_set():
                with contextlib.suppress(OSError):
                    opened.close()
        except errors.ClusterError:
            self._next_open = time.monotonic() + REOPEN_SECONDS
        finally:
            self._opening.clear()
