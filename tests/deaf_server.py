"""A server that takes connections and requests, and never answers."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class DeafServer:
    """Listens on loopback; `held_seconds` has how long each connection was kept open by its client."""

    url: str
    held_seconds: list[float] = field(default_factory=list)


@contextlib.contextmanager
def deaf_server() -> Iterator[DeafServer]:
    """Run one until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = DeafServer(f"http://127.0.0.1:{listening.getsockname()[1]}")
        threading.Thread(target=_take, args=(listening, found), daemon=True).start()
        try:
            yield found
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _take(listening: socket.socket, found: DeafServer) -> None:
    with contextlib.suppress(OSError):
        while True:
            taken, _ = listening.accept()
            threading.Thread(target=_hold, args=(taken, found), daemon=True).start()


def _hold(taken: socket.socket, found: DeafServer) -> None:
    since = time.monotonic()
    with taken, contextlib.suppress(OSError):
        while taken.recv(1 << 16):
            pass
    found.held_seconds.append(time.monotonic() - since)
