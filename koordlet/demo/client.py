"""Open-loop load: requests start on schedule, whether or not earlier ones were answered.

A latency counts from the time at which the request should have started, so that a stall hides nothing (coordinated
omission; Tene, "How NOT to Measure Latency", 2013). Run as a program; it takes a real-time priority where it may,
because it is the instrument and must not be measured itself.
"""

import contextlib
import os
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

RECORD = struct.Struct("<dd")
"""Seconds from the start at which a request should have begun, and its latency in seconds; NaN if it failed."""
LAST_WAIT_SECONDS = 5.0


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield the times of a Poisson process; equal seeds give equal times."""
    draw = random.Random(seed)
    at = draw.expovariate(rate)
    while at < seconds:
        yield at
        at += draw.expovariate(rate)


class Load:
    """One run against a port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._epoll = select.epoll()
        self._waiting: dict[int, tuple[socket.socket, float]] = {}

    def run(self, times: Iterator[float], began: float) -> Iterator[tuple[float, float]]:
        """Yield (intended start, latency) of each request as it ends; NaN for one not answered in time.

        Starts are seconds after `began`, in CLOCK_MONOTONIC.
        """
        for at in times:
            while (left := began + at - time.monotonic()) > 0:
                yield from self._answers(began, left)
            yield from self._start(at)
        deadline = time.monotonic() + LAST_WAIT_SECONDS
        while self._waiting and (left := deadline - time.monotonic()) > 0:
            yield from self._answers(began, left)
        for connection, at in self._waiting.values():
            connection.close()
            yield at, float("nan")

    def _start(self, at: float) -> Iterator[tuple[float, float]]:
        try:
            connection = socket.create_connection(("127.0.0.1", self._port), timeout=1.0)
            connection.sendall(b"1")
        except OSError:
            yield at, float("nan")
            return
        self._waiting[connection.fileno()] = (connection, at)
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _ready(self, timeout: float) -> list[tuple[int, int]]:
        """Descriptors with an answer, waited for to the microsecond: epoll itself rounds up to milliseconds."""
        return self._epoll.poll(0) if select.select([self._epoll], [], [], timeout)[0] else []

    def _answers(self, began: float, timeout: float) -> Iterator[tuple[float, float]]:
        for descriptor, _events in self._ready(timeout):
            connection, at = self._waiting.pop(descriptor)
            self._epoll.unregister(descriptor)
            answered = b""
            with contextlib.suppress(OSError):
                answered = connection.recv(1)
            connection.close()
            yield at, time.monotonic() - began - at if answered else float("nan")


def main(arguments: list[str], load: type[Load] = Load) -> None:
    """PORT RATE SECONDS SEED [BEGIN]: run and write a record for each request to standard output.

    BEGIN, in CLOCK_MONOTONIC, is the beginning of the first second; without it, now.
    """
    port, rate, seconds, seed = int(arguments[0]), float(arguments[1]), float(arguments[2]), int(arguments[3])
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    began = float(arguments[4]) if len(arguments) > 4 else time.monotonic()
    for at, latency in load(port).run(arrivals(rate, seconds, seed), began):
        os.write(1, RECORD.pack(at, latency))


if __name__ == "__main__":
    main(sys.argv[1:])
