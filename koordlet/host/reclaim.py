"""Takes memory from a cgroup at once, in pieces, so that a tick is never held up for long."""

import errno
import time
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.tree import HostError

_PIECE_BYTES = 16 << 20
_MOST_SECONDS = 0.2


def reclaim(directory: Path, amount_bytes: int) -> int:
    """Bytes that the kernel took, at most `amount_bytes`; fewer where no more is to be had or time is up.

    Raises Unsupported without memory.reclaim (cgroup v1, Linux before 5.19): v1's force_empty takes everything, and
    a lowered limit can end in the OOM killer.
    """
    path = directory / "memory.reclaim"
    if not path.exists():
        raise Unsupported("there is no memory.reclaim here", "needs cgroup v2 and Linux 5.19 or later")
    taken, deadline = 0, time.monotonic() + _MOST_SECONDS
    while taken < amount_bytes and time.monotonic() < deadline:
        piece = min(_PIECE_BYTES, amount_bytes - taken)
        try:
            path.write_text(str(piece))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                break
            raise HostError(path, f"write {piece} to", error.errno or errno.EIO) from error
        taken += piece
    return taken
