"""One thread, one epoll, all connections: the twin's HTTP server.

A single thread keeps writes linear without locks between them and spares Python the hand-over of its lock
from thread to thread, which costs more than the requests. Answers of one connection keep their order.
"""

import contextlib
import errno
import heapq
import itertools
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.twin.http_messages import STREAM_END, HttpRequest, MalformedRequest, take_request

_READ_BYTES = 1 << 18
_IN = select.EPOLLIN | select.EPOLLRDHUP
_OUT = select.EPOLLOUT


@dataclass(slots=True, eq=False)
class Connection:
    """A client's connection; `streaming` once a watch took it over, `paused` while an answer is delayed."""

    socket: socket.socket
    inbound: bytearray = field(default_factory=bytearray)
    outbound: bytearray = field(default_factory=bytearray)
    streaming: bool = False
    stalled: bool = False
    paused: bool = False
    closing: bool = False
    closed: bool = False
    polled: int = _IN

    def write(self, data: bytes) -> None:
        """Queue bytes; a stalled stream swallows them."""
        if not self.stalled:
            self.outbound += data


Handler = Callable[[Connection, HttpRequest], None]


class Server:
    """Listens on loopback and calls `handler` for each request, always in its one thread under `lock`."""

    def __init__(self, handler: Handler, *, port: int = 0, slow_reader_bytes: int = 64 << 20) -> None:
        self.lock = threading.RLock()
        self._handler = handler
        self._slow_reader_bytes = slow_reader_bytes
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._dirty: set[Connection] = set()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="twin", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Close everything; also what was never started."""
        self._stopping = True
        if self._thread.is_alive():
            self._wake()
            self._thread.join(10.0)
        else:
            self._close_all()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` in the server's thread, `seconds` from now. Call under `lock`."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), action))
        self._wake()

    def send(self, connection: Connection, data: bytes) -> None:
        """Queue bytes for a connection and have them sent. Call under `lock`."""
        connection.write(data)
        self._dirty.add(connection)

    def send_if_keeping_up(self, connection: Connection, data: bytes) -> None:
        """Like `send`, to a reader that must keep up. Call under `lock`.

        What a busy API server does to one that cannot: it ends the stream without an error.
        """
        self.send(connection, data)
        if len(connection.outbound) > self._slow_reader_bytes:
            self._flush(connection)
            if len(connection.outbound) > self._slow_reader_bytes:
                self.close(connection)

    def flush_soon(self) -> None:
        """Make the loop send what was queued from another thread."""
        if threading.current_thread() is not self._thread:
            self._wake()

    def close(self, connection: Connection, *, politely: bool = False) -> None:
        """Drop a connection at once, or `politely` after what is queued went out. Call under `lock`."""
        if politely and not connection.closed:
            connection.closing = True
            self._dirty.add(connection)
            self.flush_soon()
        elif not connection.closed:
            connection.closed = True
            number = connection.socket.fileno()
            with contextlib.suppress(OSError):
                self._epoll.unregister(number)
            self._connections.pop(number, None)
            self._dirty.discard(connection)
            connection.socket.close()

    def end_stream(self, connection: Connection) -> None:
        """Finish a streamed body; the connection stays for the next request. Call under `lock`."""
        self.send(connection, STREAM_END)
        connection.streaming = False

    def resume(self, connection: Connection) -> None:
        """Go on reading requests after a pause. Call under `lock` in the server's thread."""
        connection.paused = False
        self._handle_buffered(connection)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"x")

    def _run(self) -> None:
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake_in.fileno(), select.EPOLLIN)
        while not self._stopping:
            with self.lock:
                wait = self._seconds_to_next_timer()
            events = self._epoll.poll(wait)
            with self.lock:
                for number, mask in events:
                    self._serve(number, mask)
                self._run_timers()
                for connection in list(self._dirty):
                    self._flush(connection)
        self._close_all()

    def _serve(self, number: int, mask: int) -> None:
        if number == self._listener.fileno():
            self._accept()
        elif number == self._wake_in.fileno():
            with contextlib.suppress(BlockingIOError):
                self._wake_in.recv(4096)
        elif (connection := self._connections.get(number)) is not None:
            if mask & (select.EPOLLERR | select.EPOLLHUP):
                self.close(connection)
            elif mask & select.EPOLLIN:
                self._read(connection)
            elif mask & select.EPOLLRDHUP:
                self.close(connection)
            if mask & _OUT and not connection.closed:
                self._dirty.add(connection)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = self._listener.accept()
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[client.fileno()] = Connection(client)
                self._epoll.register(client.fileno(), _IN)

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close(connection)
            return
        connection.inbound += data
        self._handle_buffered(connection)

    def _handle_buffered(self, connection: Connection) -> None:
        while not (connection.paused or connection.streaming or connection.closing or connection.closed):
            try:
                request = take_request(connection.inbound)
            except (MalformedRequest, ValueError):
                self.close(connection)
                return
            if request is None:
                return
            self._handler(connection, request)

    def _flush(self, connection: Connection) -> None:
        self._dirty.discard(connection)
        while connection.outbound and not connection.closed:
            try:
                sent = connection.socket.send(connection.outbound)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    self.close(connection)
                break
            del connection.outbound[:sent]
        if connection.closed:
            return
        if connection.closing and not connection.outbound:
            self.close(connection)
            return
        wanted = _IN | _OUT if connection.outbound else _IN
        if wanted != connection.polled:
            connection.polled = wanted
            self._epoll.modify(connection.socket.fileno(), wanted)

    def _seconds_to_next_timer(self) -> float:
        if self._dirty:
            return 0.0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else 3600.0

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _close_all(self) -> None:
        with self.lock:
            for connection in list(self._connections.values()):
                self.close(connection)
            self._epoll.close()
            for end in (self._listener, self._wake_in, self._wake_out):
                end.close()
