"""Memory reclaim from a cgroup at once, ended after a time, so that a tick is never held up for long.

Cgroup v2 has memory.reclaim for that. On v1 the kernel reclaims when a limit below usage is written: it sets the limit
once usage fits, until then it reclaims, looks for signals, and gives up with EBUSY where it gets no further
(mem_cgroup_resize_max, page_counter_set_max). The limit written here is 0, far below what is left when a signal ends
the write. So the present limit stays in force throughout: under a limit that usage has just been made to fit, a process
that allocates would be killed as soon as there is no page cache left to reclaim. Should all memory of a cgroup go
meanwhile, the writer sets the present limit again at once.
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.attribute_formats import PAGE_BYTES
from koordlet.host.cgroups.memory import reclaimable_bytes
from koordlet.host.cgroups.timed_write import write_in_turns
from koordlet.host.files import HostError

SET_BACK = "set back"
"""Operation of the error that says that a lowered limit may still be in the file."""
LIMIT_FILE, USAGE_FILE, STAT_FILE = "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"
REQUEST_FILE = "memory.reclaim"
_STAT_BYTES = 1 << 16
_PIECE_BYTES = 16 << 20
_MOST_SECONDS = 0.2
_SHORTEST_TURN_SECONDS, _LONGEST_TURN_SECONDS = 50e-6, 250e-6
RESERVE_BYTES = 32 << 20
"""Page cache that reclaim by the limit is to leave, or an eighth of what there is; it may take a turn's more."""
UNREACHABLE_LIMIT = "0"
"""What is written to have memory reclaimed on v1."""


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


def reclaimable_by_limit(directory: Path, amount_bytes: int) -> int:
    """Bytes of the amount that can be reclaimed from a v1 cgroup without swap or touching the reserve: whole pages.

    Raises HostError.
    """
    with ExitStack() as opened:
        cache = _File(directory / STAT_FILE, opened).cache_bytes()
    return min(amount_bytes, _above_reserve(cache)) // PAGE_BYTES * PAGE_BYTES


def reclaim_by_limit(directory: Path, amount_bytes: int, present_limit: str) -> int:
    """Have the kernel reclaim for a limit that usage cannot fit; return the bytes by which usage fell.

    Ends when usage has fallen by the amount (or more, by what is reclaimed in a turn: 64 to 94 MiB for 64 were seen),
    when the page cache has come down to the reserve, where the kernel gets no further, and when time is up. Raises
    HostError, with the operation SET_BACK where that limit may be in force.
    """
    path = directory / LIMIT_FILE
    with ExitStack() as opened:
        usage, stat = _File(directory / USAGE_FILE, opened), _File(directory / STAT_FILE, opened)
        limit_fd = _open(path, os.O_WRONLY, opened)
        before = usage.usage_bytes()
        turns = _Turns(usage, stat, amount_bytes)
        contents = UNREACHABLE_LIMIT.encode(), present_limit.encode()
        try:
            write_in_turns(turns.next_seconds, _MOST_SECONDS, limit_fd, *contents)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.EINTR):
                raise HostError(path, f"write {UNREACHABLE_LIMIT} to", error.errno or errno.EIO) from error
        finally:
            _set_back(path, present_limit)
        return max(before - usage.usage_bytes(), 0)


class _Turns:
    """Lengths of the turns of a reclaim: each is to take half of what is left, at the rate of the one before.

    Page cache of large folios goes at 100 GB/s, that of single pages at 1 GB/s.
    """

    def __init__(self, usage: "_File", stat: "_File", amount_bytes: int) -> None:
        self._usage, self._stat = usage, stat
        cache = stat.cache_bytes()
        self._target = usage.usage_bytes() - amount_bytes
        self._reserve = cache - _above_reserve(cache)
        self._left = amount_bytes
        self._seconds = 0.0

    def next_seconds(self) -> float:
        """Seconds; 0 where enough was reclaimed. Raises HostError."""
        began = time.monotonic()
        left = min(self._usage.usage_bytes() - self._target, self._stat.cache_bytes() - self._reserve)
        if left <= 0:
            return 0.0
        # Statistics of a large host take longer than a turn: half of the time is the kernel's at least.
        longest = max(_LONGEST_TURN_SECONDS, time.monotonic() - began)
        to_half = self._seconds * left / (2 * max(self._left - left, PAGE_BYTES))
        self._seconds = max(min(to_half, 2 * self._seconds, longest), _SHORTEST_TURN_SECONDS)
        self._left = left
        return self._seconds


def _open(path: Path, flags: int, opened: ExitStack) -> int:
    try:
        fd = os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(path, "open", error.errno or errno.EIO) from error
    opened.callback(os.close, fd)
    return fd


class _File:
    """A file of a memory cgroup that is kept open. Its methods raise HostError."""

    def __init__(self, path: Path, opened: ExitStack) -> None:
        self._path = path
        self._fd = _open(path, os.O_RDONLY, opened)

    def usage_bytes(self) -> int:
        """Bytes that are charged."""
        return self._parsed(int)

    def cache_bytes(self) -> int:
        """Bytes that can be reclaimed without swap."""
        return self._parsed(reclaimable_bytes)

    def _parsed(self, parse: Callable[[bytes], int]) -> int:
        try:
            return parse(os.pread(self._fd, _STAT_BYTES, 0))
        except OSError as error:
            raise HostError(self._path, "read", error.errno or errno.EIO) from error
        except ValueError as error:
            raise HostError(self._path, "read", errno.EINVAL, "its text is of another shape") from error


def _above_reserve(cache_bytes: int) -> int:
    return max(cache_bytes - max(RESERVE_BYTES, cache_bytes // 8), 0)


def _set_back(path: Path, present_limit: str) -> None:
    """Write the present limit if the other is in force after all, for all memory of the cgroup went by itself."""
    try:
        if path.read_text().strip() == UNREACHABLE_LIMIT:
            path.write_text(present_limit)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):  # the cgroup is gone
            return
        raise HostError(path, SET_BACK, error.errno or errno.EIO) from error
