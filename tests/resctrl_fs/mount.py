"""The tree behind FUSE. One write(2) is one command; a file's text is fixed when it is opened."""

import errno
import itertools
import os
import stat
import threading
from pathlib import Path
from typing import Any

import mfusepy

from tests.resctrl_fs.nodes import Directory, File
from tests.resctrl_fs.tree import ResctrlTree


class ResctrlOperations(mfusepy.Operations):  # type: ignore[misc]
    """FUSE callbacks; `lock` guards the tree against the control channel."""

    use_ns = True

    def __init__(self, tree: ResctrlTree, lock: threading.Lock) -> None:
        self._tree = tree
        self._lock = lock
        self._open_texts: dict[int, bytes] = {}
        self._handles = itertools.count(1)

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:
        # Sizes are 0 as in kernfs, so reads must not stop at the size; and nothing may answer from a cache.
        config_3.direct_io = 1
        config_3.entry_timeout = config_3.attr_timeout = config_3.negative_timeout = 0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        with self._lock:
            node = self._tree.lookup(path)
        if isinstance(node, Directory):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        return {"st_mode": stat.S_IFREG | (0o644 if node.write else 0o444), "st_nlink": 1, "st_size": 0}

    def readdir(self, path: str, fh: int) -> list[str]:
        with self._lock:
            node = self._tree.lookup(path)
            if not isinstance(node, Directory):
                raise mfusepy.FuseOSError(errno.ENOTDIR)
            return [".", "..", *node.entries()]

    def open(self, path: str, flags: int) -> int:
        with self._lock:
            node = self._tree.lookup(path)
            if not isinstance(node, File):
                raise mfusepy.FuseOSError(errno.EISDIR)
            if flags & os.O_ACCMODE != os.O_RDONLY and node.write is None:
                # The kernel checks permissions of kernfs files at open, for root as well.
                raise mfusepy.FuseOSError(errno.EACCES)
            handle = next(self._handles)
            if flags & os.O_ACCMODE != os.O_WRONLY:
                self._open_texts[handle] = node.read().encode()
            return handle

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self._open_texts[fh][offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        _, _, pid = mfusepy.fuse_get_context()
        with self._lock:
            self._tree.write(path, data, pid)
        return len(data)

    def release(self, path: str, fh: int) -> int:
        self._open_texts.pop(fh, None)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return 0

    def chmod(self, path: str, mode: int) -> int:
        raise mfusepy.FuseOSError(errno.EPERM)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        raise mfusepy.FuseOSError(errno.EACCES)

    def unlink(self, path: str) -> int:
        raise mfusepy.FuseOSError(errno.EPERM)

    def mkdir(self, path: str, mode: int) -> int:
        with self._lock:
            self._tree.mkdir(path)
        return 0

    def rmdir(self, path: str) -> int:
        with self._lock:
            self._tree.rmdir(path)
        return 0

    def rename(self, old: str, new: str) -> int:
        with self._lock:
            self._tree.rename(old, new)
        return 0


def serve(tree: ResctrlTree, lock: threading.Lock, mountpoint: Path) -> None:
    """Mount at `mountpoint` and serve until it is unmounted."""
    mfusepy.FUSE(
        ResctrlOperations(tree, lock),
        str(mountpoint),
        foreground=True,
        nothreads=True,
        fsname="resctrl",
        subtype="resctrl",
    )
