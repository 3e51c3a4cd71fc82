"""Open-loop GETs on kept connections; the latency counts from the intended start to the reply.

Run as a program like `koordlet.demo.client`, whose records it writes. A request takes a connection that waits for
nothing, or a new one.
"""

import contextlib
import socket
import sys
import time
from collections.abc import Iterator

from koordlet.demo.client import Load, main

REQUEST = b"*2\r\n$3\r\nGET\r\n$5\r\nkoord\r\n"


class RedisLoad(Load):
    """One run against a port of a redis server."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._free: list[socket.socket] = []

    def _start(self, at: float) -> Iterator[tuple[float, float]]:
        try:
            connection = self._free.pop() if self._free else self._connect()
            connection.sendall(REQUEST)
        except OSError:
            yield at, float("nan")
            return
        self._waiting[connection.fileno()] = (connection, at)

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=1.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._epoll.register(connection.fileno(), 1)
        return connection

    def _answers(self, began: float, timeout: float) -> Iterator[tuple[float, float]]:
        for descriptor, _events in self._ready(timeout):
            connection, at = self._waiting.pop(descriptor)
            answered = False
            with contextlib.suppress(OSError):
                answered = bool(connection.recv(4096))
            if answered:
                self._free.append(connection)
            else:
                self._epoll.unregister(descriptor)
                connection.close()
            yield at, time.monotonic() - began - at if answered else float("nan")


if __name__ == "__main__":
    main(sys.argv[1:], RedisLoad)
