"""Changes below a directory of cgroups as the kernel tells them (inotify), to the depth of a pod's containers.

Kernfs tells of directories that a process makes and removes, which is all that happens to cgroups. The watch of a
directory ends with it; where the queue overflowed, everything is looked at anew.
"""

import contextlib
import ctypes
import os
import select
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from api.plugin import Unsupported

DEPTH = 2
"""Levels below the kubelet's directory that are watched: classes, and pods, in which containers come and go."""
MAX_WATCHES = 4096
"""Directories watched at most, of a node of any size; those beyond are seen by the walk alone."""
_IN_CREATE, _IN_DELETE, _IN_MOVED_TO, _IN_MOVED_FROM = 0x100, 0x200, 0x80, 0x40
_IN_ONLYDIR, _IN_ISDIR, _IN_IGNORED, _IN_Q_OVERFLOW = 0x0100_0000, 0x4000_0000, 0x8000, 0x4000
_WANTED = _IN_CREATE | _IN_DELETE | _IN_MOVED_TO | _IN_MOVED_FROM | _IN_ONLYDIR
_EVENT = struct.Struct("iIII")
"""`struct inotify_event`: watch, mask, cookie, length of the name that follows."""
_READ_BYTES = 64 << 10


class TreeEvents:
    """Thread that calls `changed` soon after a directory came or went below those that are followed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Raises Unsupported where the kernel gives no inotify instance."""
        self._changed = changed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise Unsupported(
                f"inotify: {os.strerror(ctypes.get_errno())}",
                "raise fs.inotify.max_user_instances; meanwhile the tree is looked at each second",
            )
        self._watched: dict[int, tuple[bytes, int]] = {}
        """Path and level by watch."""
        self._followed: frozenset[bytes] = frozenset()
        self._one_at_a_time = threading.Lock()
        self._wake, self._waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="cgroup-events", daemon=True)
        self._thread.start()

    @property
    def watches(self) -> int:
        """Directories watched."""
        return len(self._watched)

    def follow(self, directory: Path) -> bool:
        """Watch a directory and those below it; return whether it is watched. Cheap where it is already."""
        path = os.fsencode(directory)
        with self._one_at_a_time:
            if path not in self._followed and self._watch(path, 0):
                self._followed |= {path}
            return path in self._followed

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop; idempotent."""
        if self._fd < 0:
            return
        with contextlib.suppress(BlockingIOError):
            os.write(self._waking, b"x")
        self._thread.join(timeout_seconds)
        for fd in (self._fd, self._wake, self._waking):
            os.close(fd)
        self._fd = -1

    def _watch(self, path: bytes, level: int) -> bool:
        """Watch a directory, then what is below it: what comes between the two is told twice, never not at all."""
        if len(self._watched) >= MAX_WATCHES:
            return False
        watch = self._libc.inotify_add_watch(self._fd, path, _WANTED)
        if watch < 0:
            return False  # gone again, or no watch is left: the walk sees it
        self._watched[watch] = (path, level)
        if level < DEPTH:
            with contextlib.suppress(OSError), os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        self._watch(entry.path, level + 1)
        return True

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not any(fd == self._wake for fd, _ in poll.poll()):
            with contextlib.suppress(BlockingIOError):
                if self._take(os.read(self._fd, _READ_BYTES)):
                    self._changed()

    def _take(self, data: bytes) -> bool:
        """Follow the events in a buffer; return whether a directory came or went."""
        changed, offset = False, 0
        with self._one_at_a_time:
            while offset + _EVENT.size <= len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                name = data[offset + _EVENT.size : offset + _EVENT.size + length].rstrip(b"\0")
                offset += _EVENT.size + length
                if mask & _IN_Q_OVERFLOW:
                    for path in self._followed:
                        self._watch(path, 0)
                    changed = True
                elif mask & _IN_IGNORED:
                    gone, _ = self._watched.pop(watch, (b"", 0))
                    self._followed -= {gone}
                elif mask & _IN_ISDIR and watch in self._watched:
                    path, level = self._watched[watch]
                    if mask & (_IN_CREATE | _IN_MOVED_TO) and level < DEPTH:
                        self._watch(path + b"/" + name, level + 1)
                    changed = True
        return changed
