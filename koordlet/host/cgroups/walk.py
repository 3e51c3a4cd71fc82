"""The present cgroups of the cpu hierarchy from tick to tick, without walking the whole tree each time.

A kernfs directory's link count is two plus its children, so one fstat on a kept descriptor tells whether a
directory must be listed again. Listing every directory in a slow rotation catches a removal and a creation that
cancelled out between two ticks. A directory is opened by its name from its parent's descriptor: neither the length of
a path nor its bytes matter. Paths are in the text form of `api.cgroup_path`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from api.cgroup_path import lineage, path_text


@dataclass(slots=True)
class _Directory:
    fd: int
    id: int
    name: str
    """As the kernel has it, to be opened."""
    above: "_Directory | None"
    children: set[str] = field(default_factory=set)
    """Names as the kernel has them."""
    links: int = -1
    owner_uid: int = -1


@dataclass(frozen=True, slots=True)
class CgroupChange:
    """Cgroups that appeared and disappeared: paths by id."""

    added: dict[int, str]
    removed: dict[int, str]
    owners: dict[int, int] = field(default_factory=dict)
    """Owner of the directory by id, of those that came and of those that were chowned (systemd's delegation)."""


class CgroupWalk:
    """The living cgroups below a mount: path under the mount (`/` is the root) by kernfs id."""

    def __init__(self, mount: Path, relist_every: int = 32) -> None:
        self._mount = str(mount)
        self._relist_every = relist_every
        self._scans = 0
        self._directories: dict[str, _Directory] = {}
        self._added: dict[int, str] = {}
        self._removed: dict[int, str] = {}
        self._owners: dict[int, int] = {}
        self._trusted = frozenset((0, os.geteuid()))

    @property
    def paths(self) -> dict[int, str]:
        """Id to path of every known cgroup, parents before children of the same name prefix."""
        return {directory.id: path for path, directory in self._directories.items()}

    def is_delegated(self, path: str) -> bool:
        """Return whether the directory, or one on the way to it, belongs to a user other than root (and the agent's).

        Who owns a directory makes, names and fills directories below it at will.
        """
        found = (self._directories.get(each) for each in (*lineage(path), "/"))
        return any(directory is None or directory.owner_uid not in self._trusted for directory in found)

    def scan(self, *, everything: bool = False) -> CgroupChange:
        """Return the changes since the last call; `everything` lists all directories anew."""
        self._scans += 1
        self._added, self._removed, self._owners = {}, {}, {}
        if "/" not in self._directories:
            self._enter("/", self._mount, None)
        for position, path in enumerate(list(self._directories)):
            directory = self._directories.get(path)
            if directory is None:
                continue
            forced = everything or (position + self._scans) % self._relist_every == 0
            self._revisit(path, directory, forced=forced)
        return CgroupChange(self._added, self._removed, self._owners)

    def _enter(self, path: str, name: str, above: _Directory | None) -> None:
        """Take a directory and all below it."""
        entered = [(path, name, above)]
        while entered:
            path, name, above = entered.pop()
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above.fd if above else None)
            except OSError:  # gone between listing and opening
                continue
            status = os.fstat(fd)
            directory = self._directories[path] = _Directory(fd, status.st_ino, name, above)
            if status.st_ino in self._removed and self._removed[status.st_ino] == path:
                del self._removed[status.st_ino]
            else:
                self._added[status.st_ino] = path
            directory.owner_uid = self._owners[directory.id] = status.st_uid
            directory.links, directory.children = status.st_nlink, set(self._list(directory))
            entered += [(_join(path, child), child, directory) for child in sorted(directory.children, reverse=True)]

    def _revisit(self, path: str, directory: _Directory, *, forced: bool) -> None:
        try:
            status = os.fstat(directory.fd)
        except OSError:
            self._leave(path)
            return
        links = status.st_nlink
        if links == 0 or (forced and not self._still_there(directory)):
            self._leave(path)
            return
        if status.st_uid != directory.owner_uid:
            directory.owner_uid = self._owners[directory.id] = status.st_uid
        if links == directory.links and not forced:
            return
        directory.links = links
        present = set(self._list(directory))
        for name in directory.children - present:
            self._leave(_join(path, name))
        directory.children = present
        for name in present:
            if _join(path, name) not in self._directories:
                self._enter(_join(path, name), name, directory)

    @staticmethod
    def _still_there(directory: _Directory) -> bool:
        if directory.above is None:
            return True
        try:
            return os.stat(directory.name, dir_fd=directory.above.fd, follow_symlinks=False).st_ino == directory.id
        except OSError:
            return False

    @staticmethod
    def _list(directory: _Directory) -> Iterator[str]:
        try:
            with os.scandir(directory.fd) as entries:
                yield from [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:  # removed while it was listed
            return

    def _leave(self, path: str) -> None:
        """Drop a directory and all below it."""
        left = [path]
        while left:
            path = left.pop()
            directory = self._directories.pop(path, None)
            if directory is None:
                continue
            left += [_join(path, name) for name in directory.children]
            os.close(directory.fd)
            self._owners.pop(directory.id, None)
            if self._added.get(directory.id) == path:
                del self._added[directory.id]
            else:
                self._removed[directory.id] = path

    def close(self) -> None:
        """Close every descriptor; idempotent."""
        for directory in self._directories.values():
            os.close(directory.fd)
        self._directories.clear()


def _join(path: str, name: str) -> str:
    text = path_text(name)
    return f"/{text}" if path == "/" else f"{path}/{text}"
