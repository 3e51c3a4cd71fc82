"""Best-effort work: processes that compress blocks as fast as they can, each counting in a shared file."""

import mmap
import os
import struct
import sys
import zlib
from pathlib import Path

COUNT = struct.Struct("<Q")
BLOCK = b"".join(b"%d lines of a log that is to be compressed\n" % number for number in range(20_000))[: 256 * 1024]


def work(counter: mmap.mmap, place: int) -> None:
    """Compress until killed; the counter is the number of blocks done."""
    done = 0
    while True:
        zlib.compress(BLOCK, 1)
        done += 1
        COUNT.pack_into(counter, place * COUNT.size, done)


def blocks_done(path: Path) -> int:
    """Return the blocks of all workers so far."""
    data = path.read_bytes()
    return sum(value for (value,) in COUNT.iter_unpack(data[: len(data) // COUNT.size * COUNT.size]))


def main(arguments: list[str]) -> None:
    """COUNTER_FILE WORKERS: fork and work."""
    path, workers = Path(arguments[0]), int(arguments[1])
    path.write_bytes(bytes(workers * COUNT.size))
    with path.open("r+b") as file:
        counter = mmap.mmap(file.fileno(), 0)
    place = 0
    for number in range(1, workers):
        if os.fork() == 0:
            place = number
            break
    work(counter, place)


if __name__ == "__main__":
    main(sys.argv[1:])
