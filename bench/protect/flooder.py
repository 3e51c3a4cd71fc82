"""Best-effort work that holds memory and floods the page cache: an endless checksum over a file that fits into no
cache."""

import mmap
import os
import sys
import zlib
from pathlib import Path

from koordlet.demo.batch import COUNT

BLOCK_BYTES = 1 << 20


def main(arguments: list[str]) -> None:
    """COUNTER_FILE PATH HELD_BYTES CPU: the counter is the number of blocks done."""
    counter_file, path, held_bytes, cpu = arguments
    os.sched_setaffinity(0, {int(cpu)})
    held = mmap.mmap(-1, int(held_bytes))
    for offset in range(0, len(held), mmap.PAGESIZE):
        held[offset] = 1
    Path(counter_file).write_bytes(bytes(COUNT.size))
    done = checksum = 0
    with Path(counter_file).open("r+b") as file, mmap.mmap(file.fileno(), 0) as counter:
        while True:
            with Path(path).open("rb", buffering=0) as stream:
                while block := stream.read(BLOCK_BYTES):
                    checksum = zlib.crc32(block, checksum)
                    done += 1
                    COUNT.pack_into(counter, 0, done)


if __name__ == "__main__":
    main(sys.argv[1:])
