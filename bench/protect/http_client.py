"""Open-loop HTTP load: one connection a request; the latency counts from the intended start to the last byte.

Run as a program like `koordlet.demo.client`, whose records it writes.
"""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator

from koordlet.demo.client import RECORD, Load, arrivals

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
        for descriptor, _events in self._epoll.poll(timeout):
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


def main(arguments: list[str]) -> None:
    """PORT RATE SECONDS SEED: run and write a record for each request to standard output."""
    port, rate, seconds, seed = int(arguments[0]), float(arguments[1]), float(arguments[2]), int(arguments[3])
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    for at, latency in HttpLoad(port).run(arrivals(rate, seconds, seed)):
        os.write(1, RECORD.pack(at, latency))


if __name__ == "__main__":
    main(sys.argv[1:])
