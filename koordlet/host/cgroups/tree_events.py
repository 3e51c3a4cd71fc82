"""Changes below a directory of cgroups as the kernel tells them (inotify), to the depth of a pod's containers.

Kernfs tells of directories that a process makes and removes, which is all that happens to cgroups. It does not tell the
watch of a directory that the directory is gone, as other file systems do (IN_IGNORED): the watch above does, and where
none is above, the inode tells. Where the queue overflowed, everything is looked at anew.
"""

import contextlib
import ctypes
import errno
import logging
import os
import select
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from api.plugin import Unsupported

_log = logging.getLogger(__name__)

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
        self._watches: dict[bytes, int] = {}
        """Watch by path."""
        self._followed: dict[bytes, int] = {}
        """Inode by path."""
        self._has_told = False
        self._one_at_a_time = threading.Lock()
        self._wake, self._waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="cgroup-events", daemon=True)
        self._thread.start()

    @property
    def watches(self) -> int:
        """Directories watched."""
        return len(self._watched)

    @property
    def is_partial(self) -> bool:
        """Whether some directory found no watch: what comes and goes in it is not told of."""
        return self._has_told

    def follow(self, directory: Path) -> bool:
        """Watch a directory and those below it; return whether it is watched. Cheap where it is already."""
        path = os.fsencode(directory)
        with self._one_at_a_time:
            try:
                inode = os.stat(path).st_ino
            except OSError:
                self._forget(path)
                return False
            if self._followed.get(path) != inode:
                self._forget(path)
                if self._watch(path, 0):
                    self._followed[path] = inode
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
        if path not in self._watches and len(self._watched) >= MAX_WATCHES:
            self._tell_once(f"no more than {MAX_WATCHES} directories are watched")
            return False
        watch = self._libc.inotify_add_watch(self._fd, path, _WANTED)
        if watch < 0:
            if ctypes.get_errno() == errno.ENOSPC:
                self._tell_once("fs.inotify.max_user_watches are used up")
            return False  # gone again, or no watch is left: the walk sees it
        if self._watches.get(path, watch) != watch:
            self._forget(path)
        self._watched[watch] = (path, level)
        self._watches[path] = watch
        if level < DEPTH:
            with contextlib.suppress(OSError), os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        self._watch(entry.path, level + 1)
        return True

    def _forget(self, path: bytes) -> None:
        """End the watches of a directory that is gone and of those below it."""
        for each in [one for one in self._watches if one == path or one.startswith(path + b"/")]:
            watch = self._watches.pop(each)
            del self._watched[watch]
            self._followed.pop(each, None)
            self._libc.inotify_rm_watch(self._fd, watch)

    def _tell_once(self, reason: str) -> None:
        if not self._has_told:
            self._has_told = True
            _log.warning("containers that live for a moment may be missed: %s", reason)

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
                    self._look_anew()
                    changed = True
                elif mask & _IN_IGNORED and watch in self._watched:
                    self._forget(self._watched[watch][0])
                elif mask & _IN_ISDIR and watch in self._watched:
                    path, level = self._watched[watch]
                    if mask & (_IN_DELETE | _IN_MOVED_FROM):
                        self._forget(path + b"/" + name)
                    elif level < DEPTH:
                        self._watch(path + b"/" + name, level + 1)
                    changed = True
        return changed

    def _look_anew(self) -> None:
        for path in [one for one in self._watches if not os.path.isdir(one)]:
            self._forget(path)
        for path in list(self._followed):
            self._watch(path, 0)
