"""A disk with one arm: each request takes 0.4 ms and as long as 150 MB/s last, one after the other.

    python -m bench.detect.slow_disk MOUNTPOINT BYTES [SPREAD]

With a spread it has many arms: requests do not wait for each other, and each takes a time of its own, lognormal around
a median of 2 ms with this standard deviation of its logarithm.

A file system in user space with one file, `disk`, kept in memory; a loop device on it is the disk. The disks under
virtual machines are so fast, and so unlike one another, that no flood is certain to harm.
"""

import errno
import math
import random
import stat
import sys
import time
from typing import Any

import mfusepy

SEEK_SECONDS = 0.0004
BYTES_PER_SECOND = 150e6
MEDIAN_SECONDS = 0.002
FLUSH_SECONDS = 0.002
NAME = "disk"
ENDED_BY_SIGNAL = 8
"""What libfuse returns where a signal ended its loop, as at the end of every scenario."""


class SlowDisk(mfusepy.Operations):  # type: ignore[misc]
    """FUSE callbacks; one thread calls them, with a spread one for each request."""

    use_ns = True

    def __init__(self, size: int, spread: float | None = None) -> None:
        self._content = bytearray(size)
        self._spread = spread

    def _serve(self, num_bytes: int) -> None:
        if self._spread is None:
            time.sleep(SEEK_SECONDS + num_bytes / BYTES_PER_SECOND)
        else:
            time.sleep(random.lognormvariate(math.log(MEDIAN_SECONDS), self._spread))

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path != f"/{NAME}":
            raise mfusepy.FuseOSError(errno.ENOENT)
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(self._content)}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", NAME]

    def open(self, path: str, flags: int) -> int:
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self._serve(size)
        return bytes(self._content[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._serve(len(data))
        self._content[offset : offset + len(data)] = data
        return len(data)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        time.sleep(FLUSH_SECONDS)
        return 0


if __name__ == "__main__":
    spread = float(sys.argv[3]) if len(sys.argv) > 3 else None
    disk = SlowDisk(int(sys.argv[2]), spread)
    try:
        mfusepy.FUSE(disk, sys.argv[1], foreground=True, nothreads=spread is None, fsname="koord-slow-disk")
    except RuntimeError as error:
        if error.args != (ENDED_BY_SIGNAL,):
            raise
