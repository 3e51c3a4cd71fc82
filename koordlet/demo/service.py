"""Latency-sensitive service: one worker a CPU takes connections from one queue, works for each, answers.

Run as a program inside the service's cgroup. A request's work is a fixed amount of hashing, not a fixed time, so that a
slower CPU shows as a longer request.
"""

import hashlib
import os
import socket
import sys
import time

BLOCK = bytes(16 * 1024)
BACKLOG = 4096


def work(blocks: int) -> None:
    """Hash so many blocks."""
    digest = hashlib.sha256()
    for _ in range(blocks):
        digest.update(BLOCK)


def blocks_for(seconds: float, trials: int = 20) -> int:
    """Return the blocks that take so long on this CPU when it is undisturbed, by the fastest of several trials."""
    best = float("inf")
    for _ in range(trials):
        started = time.thread_time()
        work(64)
        best = min(best, (time.thread_time() - started) / 64)
    return max(int(seconds / best), 1)


def serve(listener: socket.socket, blocks: int) -> None:
    """Answer requests until killed."""
    while True:
        connection, _ = listener.accept()
        try:
            if connection.recv(1):
                work(blocks)
                connection.sendall(b"1")
        except OSError:
            pass
        finally:
            connection.close()


def main(arguments: list[str]) -> None:
    """PORT BLOCKS WORKERS: listen, fork, serve; prints the port when it is ready."""
    port, blocks, workers = (int(argument) for argument in arguments)
    listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - the parent waits for this line
    for _ in range(workers - 1):
        if os.fork() == 0:
            break
    serve(listener, blocks)


if __name__ == "__main__":
    main(sys.argv[1:])
