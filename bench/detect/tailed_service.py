"""A service whose answers take lognormal times, asked at random moments over loopback. Ends when it is killed.

python bench/detect/tailed_service.py REQUESTS_PER_SECOND SIGMA MEDIAN_SECONDS
"""

import random
import socket
import sys
import threading
import time

CONNECTIONS = 8


def _answer(connection: socket.socket, sigma: float, median_seconds: float) -> None:
    with connection:
        while connection.recv(64):
            time.sleep(random.lognormvariate(0.0, sigma) * median_seconds)
            connection.sendall(b"done")


def _serve(listener: socket.socket, sigma: float, median_seconds: float) -> None:
    while True:
        accepted, _ = listener.accept()
        threading.Thread(target=_answer, args=(accepted, sigma, median_seconds), daemon=True).start()


def _ask(address: tuple[str, int], rate: float) -> None:
    with socket.create_connection(address) as connection:
        while True:
            time.sleep(random.expovariate(rate))
            connection.sendall(b"ask")
            connection.recv(64)


def main() -> None:
    """Serve, and ask."""
    rate, sigma, median_seconds = map(float, sys.argv[1:4])
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, sigma, median_seconds), daemon=True).start()
    askers = [
        threading.Thread(target=_ask, args=(listener.getsockname(), rate / CONNECTIONS)) for _ in range(CONNECTIONS)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()


if __name__ == "__main__":
    main()
