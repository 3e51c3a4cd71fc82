"""A service whose answers take lognormal times, asked at random moments over loopback. Ends when it is killed.

python bench/detect/tailed_service.py REQUESTS_PER_SECOND SIGMA MEDIAN_SECONDS [CONNECTIONS LATER AFTER]

With all six, answers take LATER times as long from AFTER seconds after the start on.
"""

import random
import socket
import sys
import threading
import time

CONNECTIONS = 8


class Times:
    """Times of answer."""

    def __init__(self, sigma: float, median_seconds: float, later: float, after: float) -> None:
        self._sigma, self._median_seconds, self._later = sigma, median_seconds, later
        self._change = time.monotonic() + after

    def draw(self) -> float:
        """Seconds of one answer."""
        factor = self._later if time.monotonic() >= self._change else 1.0
        return random.lognormvariate(0.0, self._sigma) * self._median_seconds * factor


def _answer(connection: socket.socket, times: Times) -> None:
    with connection:
        while connection.recv(64):
            time.sleep(times.draw())
            connection.sendall(b"done")


def _serve(listener: socket.socket, times: Times) -> None:
    while True:
        accepted, _ = listener.accept()
        threading.Thread(target=_answer, args=(accepted, times), daemon=True).start()


def _ask(address: tuple[str, int], rate: float) -> None:
    with socket.create_connection(address) as connection:
        while True:
            time.sleep(random.expovariate(rate))
            connection.sendall(b"ask")
            connection.recv(64)


def main() -> None:
    """Serve, and ask."""
    rate, sigma, median_seconds, *more = map(float, sys.argv[1:7])
    connections, later, after = (int(more[0]), *more[1:]) if more else (CONNECTIONS, 1.0, 0.0)
    listener = socket.create_server(("127.0.0.1", 0))
    times = Times(sigma, median_seconds, later, after)
    threading.Thread(target=_serve, args=(listener, times), daemon=True).start()
    askers = [
        threading.Thread(target=_ask, args=(listener.getsockname(), rate / connections)) for _ in range(connections)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()


if __name__ == "__main__":
    main()
