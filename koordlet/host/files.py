"""Kernel files below a root: absent is a value, any other failure an error with its path."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from api.cgroup_path import path_text, raw_path

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Nothing can be opened at present: that says nothing of what is there."""
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ENAMETOOLONG)
"""Errors of files that are not there, or not for us: no path reaches a cgroup so deep that its own is too long."""
_READ_BYTES = 16384


class HostError(OSError):
    """A kernel file could not be used; carries the path, the operation and the errno."""

    def __init__(self, path: Path | str, operation: str, number: int, detail: str = "") -> None:
        self.path = path_text(str(path))
        super().__init__(number, f"{operation} {self.path}: {detail or os.strerror(number)}")
        self.operation = operation


@dataclass(frozen=True, slots=True)
class HostTree:
    """The file system as seen below `root`, `/` on a real host and a directory of made files in tests."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        """The real path of an absolute kernel path."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """Content of a file, None if the kernel does not offer it; HostError for anything else."""
        path = self.path(name)
        try:
            return path.read_text(errors="replace")
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise HostError(path, "read", error.errno or errno.EIO) from error


class KeptFiles:
    """One file of many cgroups, opened once and read again and again at offset 0.

    Where no descriptor is free it closes those that it keeps, and opens anew what is asked for.
    `vanished` counts reads that found the cgroup gone between listing and reading; `malformed` is for the
    caller to count what it could not parse.
    """

    def __init__(self, mount: Path, filename: str) -> None:
        self._mount = mount
        self._filename = filename
        self._fds: dict[str, int] = {}
        self.vanished = 0
        self.malformed = 0

    def read(self, cgroup: str) -> bytes | None:
        """Content for the cgroup at path `cgroup` (text, under the mount), None if it is gone or lacks the file."""
        fd = self._fds.get(cgroup)
        try:
            if fd is None:
                fd = self._open(cgroup)
            return os.pread(fd, _READ_BYTES, 0)
        except OSError as error:
            self.drop(cgroup)
            if error.errno in _GONE:
                self.vanished += 1
                return None
            raise HostError(self._path(cgroup), "read", error.errno or errno.EIO) from error

    def _path(self, cgroup: str) -> str:
        return f"{self._mount}{raw_path(cgroup) if cgroup != '/' else ''}/{self._filename}"

    def _open(self, cgroup: str) -> int:
        path, flags = self._path(cgroup), os.O_RDONLY | os.O_CLOEXEC
        try:
            fd = os.open(path, flags)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or not self._fds:
                raise
            self.close()
            fd = os.open(path, flags)
        self._fds[cgroup] = fd
        return fd

    def drop(self, cgroup: str) -> None:
        """Close the file of a cgroup."""
        fd = self._fds.pop(cgroup, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close everything; idempotent."""
        for cgroup in list(self._fds):
            self.drop(cgroup)


def flat_keyed(content: bytes) -> dict[bytes, int]:
    """Parse `key value` lines (cpu.stat, memory.stat, vmstat). Raises ValueError on a line of another shape."""
    return {key: int(word) for key, word in flat_words(content).items()}


def flat_words(content: bytes) -> dict[bytes, bytes]:
    """The same lines with values as they are written: of a long file few are made numbers.

    Raises ValueError on a line of another shape.
    """
    tokens = content.split()
    if len(tokens) % 2:
        raise ValueError(f"{len(tokens)} words where key-value pairs were expected")
    return dict(zip(tokens[::2], tokens[1::2], strict=True))
