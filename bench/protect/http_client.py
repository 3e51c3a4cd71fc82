"""Open-loop HTTP load: one connection a request; the latency counts from the intended start to the last byte.

Run as a program like `koordlet.demo.client`, whose records it writes.
"""

import socket
import sys
import time
from collections.abc import Iterator

from koordlet.demo.client import Load, main

REQUEST = b"GET /page HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n"


class HttpLoad(Load):
    """One run against a port of a web server."""

    def _start(self, at: float) -> Iterator[tuple[float, float]]:
        try:
            connection = socket.create_connection(("127.0.0.1", self._port), timeout=1.0)
            connection.sendall(REQUEST)
        except OSError:
            yield at, float("nan")
            return
        self._waiting[connection.fileno()] = (connection, at)
        self._epoll.register(connection.fileno(), 1)

    def _answers(self, began: float, timeout: float) -> Iterator[tuple[float, float]]:
        for descriptor, _events in self._ready(timeout):
            connection, at = self._waiting[descriptor]
            data, failed = b"", False
            try:
                data = connection.recv(1 << 20)
            except OSError:
                failed = True
            if data:
                continue
            del self._waiting[descriptor]
            self._epoll.unregister(descriptor)
            connection.close()
            yield at, float("nan") if failed else time.monotonic() - began - at


if __name__ == "__main__":
    main(sys.argv[1:], HttpLoad)
