"""Disk victim: 4 KiB reads around the page cache that start on schedule, each on a thread that waits for it.

Run as a program inside the victim's cgroup; writes a record for each read like `koordlet.demo.client`.
"""

import mmap
import os
import random
import sys
import threading
import time
from queue import SimpleQueue

from koordlet.demo.client import RECORD, arrivals

BLOCK_BYTES = 4096
THREADS = 32


def serve(path: str, asked: "SimpleQueue[tuple[float, float]]", blocks: int) -> None:
    """Read a random block for each request of the queue."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    draw = random.Random(threading.get_ident())
    while True:
        at, due = asked.get()
        try:
            os.preadv(descriptor, [buffer], draw.randrange(blocks) * BLOCK_BYTES)
            latency = time.monotonic() - due
        except OSError:
            latency = float("nan")
        os.write(1, RECORD.pack(at, latency))


def main(arguments: list[str]) -> None:
    """PATH RATE SECONDS SEED."""
    path, rate, seconds, seed = arguments[0], float(arguments[1]), float(arguments[2]), int(arguments[3])
    blocks = os.stat(path).st_size // BLOCK_BYTES
    asked: SimpleQueue[tuple[float, float]] = SimpleQueue()
    for _ in range(THREADS):
        threading.Thread(target=serve, args=(path, asked, blocks), daemon=True).start()
    began = time.monotonic()
    for at in arrivals(rate, seconds, seed):
        time.sleep(max(began + at - time.monotonic(), 0))
        asked.put((at, began + at))
    time.sleep(3.0)


if __name__ == "__main__":
    main(sys.argv[1:])
