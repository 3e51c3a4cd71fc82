"""Memory victim: each request takes fresh memory for its session and reads a block of a file through page cache.

Sessions end when there are too many, so the service grows to its size and then goes on taking fresh memory. Requests
are served in order, each no sooner than it should start. Run as a program inside the victim's cgroup; writes a record
for each request like `koordlet.demo.client`.
"""

import mmap
import os
import random
import sys
import time
from collections import deque

from koordlet.demo.client import RECORD, arrivals

SESSION_BYTES = 256 << 10
READ_BYTES = 64 << 10
_PAGE_BYTES = mmap.PAGESIZE


def session() -> mmap.mmap:
    """Fresh memory, every page of it in use."""
    taken = mmap.mmap(-1, SESSION_BYTES)
    for offset in range(0, SESSION_BYTES, _PAGE_BYTES):
        taken[offset] = 1
    return taken


def main(arguments: list[str]) -> None:
    """PATH RATE SECONDS SEED SESSIONS CPU."""
    path, rate, seconds, seed, most, cpu = arguments
    os.sched_setaffinity(0, {int(cpu)})
    descriptor, blocks = os.open(path, os.O_RDONLY), os.stat(path).st_size // READ_BYTES
    sessions: deque[mmap.mmap] = deque()
    draw = random.Random(int(seed))
    began = time.monotonic()
    for at in arrivals(float(rate), float(seconds), int(seed)):
        time.sleep(max(began + at - time.monotonic(), 0))
        sessions.append(session())
        os.pread(descriptor, READ_BYTES, draw.randrange(blocks) * READ_BYTES)
        os.write(1, RECORD.pack(at, time.monotonic() - began - at))
        if len(sessions) > int(most):
            sessions.popleft().close()


if __name__ == "__main__":
    main(sys.argv[1:])
