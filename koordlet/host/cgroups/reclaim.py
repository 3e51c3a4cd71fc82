"""Memory reclaim from a cgroup at once, in pieces, so that a tick is never held up for long.

Cgroup v2 has memory.reclaim for that. On v1 a limit below usage does the same: the kernel reclaims until usage fits,
sets the limit only then, and gives up with EBUSY where it gets no further (mem_cgroup_resize_max,
page_counter_set_max). So the limit never cuts into usage; set back at once, it leaves nothing but less page cache. A
process of the cgroup that allocates in between reclaims the cgroup's page cache, and without any it would be killed:
hence the reserve.
"""

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.attribute_formats import PAGE_BYTES
from koordlet.host.cgroups.memory import reclaimable_bytes
from koordlet.host.cgroups.timed_write import write_within
from koordlet.host.files import HostError

SET_BACK = "set back"
"""Operation of the error that says that a lowered limit is still in the file."""
LIMIT_FILE, USAGE_FILE, REQUEST_FILE = "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.reclaim"
_PIECE_BYTES = 16 << 20
_MOST_SECONDS = 0.2
_LEAST_SECONDS = 0.01
"""For a piece that begins before time is up."""
RESERVE_BYTES = 32 << 20
"""Page cache that a lowered limit leaves, or an eighth of what there is."""


def reclaim(directory: Path, amount_bytes: int) -> int:
    """Reclaim at most `amount_bytes` and return the bytes freed; fewer where no more is to be had or time is up.

    Raises Unsupported without memory.reclaim (cgroup v1, Linux before 5.19): v1's force_empty takes everything.
    """
    path = directory / REQUEST_FILE
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


def reclaims_by_limit(directory: Path) -> bool:
    """Return whether memory is reclaimed by lowering the limit (cgroup v1)."""
    return (directory / LIMIT_FILE).exists() and not (directory / REQUEST_FILE).exists()


def lowered_limits(directory: Path, amount_bytes: int) -> tuple[int, ...]:
    """Limits that free the amount piece by piece, highest first; none where that would touch the reserve."""
    usage, spare = _usage_and_spare(directory)
    most = min(amount_bytes, spare) // PAGE_BYTES * PAGE_BYTES
    top = usage // PAGE_BYTES * PAGE_BYTES
    pieces = [*range(_PIECE_BYTES, most, _PIECE_BYTES), most] if most > 0 else []
    return tuple(top - piece for piece in pieces if top > piece)


def reclaim_by_limit(directory: Path, limits: Sequence[int], present_limit: str) -> int:
    """Set each limit and at once the present one again; return the bytes by which usage fell.

    Stops where the kernel gets no further, where the page cache would fall below the reserve, and when time is up.
    Raises HostError, with the operation SET_BACK where the present limit could not be written back.
    """
    taken, deadline = 0, time.monotonic() + _MOST_SECONDS
    for limit in limits:
        usage, spare = _usage_and_spare(directory)
        if usage <= limit:
            continue
        if usage - limit > spare or time.monotonic() > deadline:
            break
        try:
            fits = _lower(directory / LIMIT_FILE, limit, max(deadline - time.monotonic(), _LEAST_SECONDS))
        finally:
            _write(directory, present_limit, SET_BACK)
        taken += max(usage - usage_bytes(directory), 0)
        if not fits:
            break
    return taken


def usage_bytes(directory: Path) -> int:
    """Bytes that are charged to a v1 cgroup."""
    try:
        return int((directory / USAGE_FILE).read_text())
    except OSError as error:
        raise HostError(directory / USAGE_FILE, "read", error.errno or errno.EIO) from error


def _usage_and_spare(directory: Path) -> tuple[int, int]:
    """Bytes that are charged, and those of them that can be reclaimed without swap or touching the reserve."""
    try:
        cache = reclaimable_bytes((directory / "memory.stat").read_bytes())
    except OSError as error:
        raise HostError(directory / "memory.stat", "read", error.errno or errno.EIO) from error
    return usage_bytes(directory), max(cache - max(RESERVE_BYTES, cache // 8), 0)


def _lower(path: Path, limit: int, seconds: float) -> bool:
    """Write a limit within so many seconds of CPU time; return whether usage fits it. Raises HostError."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            write_within(seconds, fd, str(limit).encode())
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EINTR):
            return False
        raise HostError(path, f"write {limit} to", error.errno or errno.EIO) from error
    return True


def _write(directory: Path, text: str, operation: str) -> None:
    path = directory / LIMIT_FILE
    try:
        path.write_text(text)
    except OSError as error:
        raise HostError(path, operation, error.errno or errno.EIO) from error
