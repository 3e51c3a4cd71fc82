"""The present cgroups of the cpu hierarchy from tick to tick, without walking the whole tree each time.

A kernfs directory's link count is two plus its children, so one fstat on a kept descriptor tells whether a
directory must be listed again. Listing every directory in a slow rotation catches a removal and a creation that
cancelled out between two ticks. A directory is opened by its name from its parent's descriptor: neither the length of
a path nor its bytes matter. Paths are in the text form of `api.cgroup_path`.

Below the first directory that belongs to another user `share_of_owner` directories are known at most, and of a longer
list no more is read: its owner can make any number of them, and each known one costs open files, rows of every frame
and entries of the probes' maps.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from api.cgroup_path import lineage, path_text
from koordlet.host.files import OUT_OF_DESCRIPTORS


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
    boundary: "_Directory | None" = None
    """The first directory on the way here, this one included, that belongs to another user; None if there is none."""
    members: int = 0
    """Of a boundary: the known directories below it."""


SHARE_OF_OWNER = 128
"""Directories that are told apart below the first one that belongs to another user. A session of systemd has a few
dozen; the tripwire watches 64 of them."""
_MOST_LISTED = 8
"""In shares of an owner: names that are read of a directory of another user."""


@dataclass(frozen=True, slots=True)
class CgroupChange:
    """Cgroups that appeared and disappeared: paths by id."""

    added: dict[int, str]
    removed: dict[int, str]
    owners: dict[int, int] = field(default_factory=dict)
    """Owner of the directory by id, of those that came and of those that were chowned (systemd's delegation)."""


class CgroupWalk:
    """The living cgroups below a mount: path under the mount (`/` is the root) by kernfs id."""

    def __init__(self, mount: Path, relist_every: int = 32, *, share_of_owner: int = SHARE_OF_OWNER) -> None:
        self._mount = str(mount)
        self._relist_every = relist_every
        self._share_of_owner = share_of_owner
        self._scans = 0
        self._directories: dict[str, _Directory] = {}
        self._added: dict[int, str] = {}
        self._removed: dict[int, str] = {}
        self._owners: dict[int, int] = {}
        self._trusted = frozenset((0, os.geteuid()))
        self.unopened = 0
        """Times that a directory was not opened or not listed for want of a descriptor. What is known stays known, and
        the others are tried again in turn."""

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

    def boundary_of(self, path: str) -> str:
        """Return the first directory on the way to a cgroup that belongs to another user, or the path itself."""
        found = path
        for each in lineage(path):
            directory = self._directories.get(each)
            if directory is not None and directory.owner_uid not in self._trusted:
                found = each
        return found

    @property
    def passed_over(self) -> int:
        """Cgroups that are seen and not known, because there are more of an owner than its share."""
        return sum(
            _join(path, name) not in self._directories
            for path, directory in self._directories.items()
            if directory.boundary is not None
            for name in directory.children
        )

    def scan(self, *, everything: bool = False) -> CgroupChange:
        """Return the changes since the last call; `everything` lists all directories anew."""
        self._scans += 1
        self._added, self._removed, self._owners = {}, {}, {}
        if "/" not in self._directories:
            self._enter("/", self._mount, None)
        directories, fstat = self._directories, os.fstat
        for position, path in enumerate(list(directories)):
            directory = directories.get(path)
            if directory is None:
                continue
            try:
                status = fstat(directory.fd)
            except OSError:
                self._leave(path)
                continue
            forced = everything or (position + self._scans) % self._relist_every == 0
            links = status.st_nlink
            if forced or not links or links != directory.links or status.st_uid != directory.owner_uid:
                self._revisit(path, directory, status, forced=forced)
        return CgroupChange(self._added, self._removed, self._owners)

    def _enter(self, path: str, name: str, above: _Directory | None) -> None:
        """Take a directory and all below it."""
        entered = [(path, name, above)]
        while entered:
            path, name, above = entered.pop()
            if not self._has_room(above):
                continue
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above.fd if above else None)
            except OSError as error:  # mostly gone between listing and opening
                self.unopened += error.errno in OUT_OF_DESCRIPTORS
                continue
            status = os.fstat(fd)
            directory = self._directories[path] = _Directory(fd, status.st_ino, name, above)
            if status.st_ino in self._removed and self._removed[status.st_ino] == path:
                del self._removed[status.st_ino]
            else:
                self._added[status.st_ino] = path
            directory.owner_uid = self._owners[directory.id] = status.st_uid
            self._bound(directory)
            directory.links, directory.children = status.st_nlink, self._children(directory)
            entered += [(_join(path, child), child, directory) for child in sorted(directory.children, reverse=True)]

    def _revisit(self, path: str, directory: _Directory, status: os.stat_result, *, forced: bool) -> None:
        links = status.st_nlink
        if links == 0 or (forced and not self._still_there(directory)):
            self._leave(path)
            return
        if status.st_uid != directory.owner_uid:
            directory.owner_uid = self._owners[directory.id] = status.st_uid
            self._rebound()
            if path not in self._directories:
                return
        if links == directory.links and not forced:
            return
        directory.links = links
        present = self._children(directory)
        for name in directory.children - present:
            self._leave(_join(path, name))
        directory.children = present
        for name in present:
            if _join(path, name) not in self._directories:
                self._enter(_join(path, name), name, directory)

    def _has_room(self, above: _Directory | None) -> bool:
        boundary = above.boundary if above is not None else None
        return boundary is None or boundary.members < self._share_of_owner

    def _bound(self, directory: _Directory) -> None:
        above = directory.above
        directory.boundary = above.boundary if above is not None else None
        if directory.boundary is not None:
            directory.boundary.members += 1
        elif directory.owner_uid not in self._trusted:
            directory.boundary = directory

    def _rebound(self) -> None:
        """Find all boundaries anew after a directory has changed its owner, and leave what is beyond a share now."""
        for directory in self._directories.values():
            directory.members = 0
        for path, directory in list(self._directories.items()):  # parents come before their children
            if path not in self._directories:
                continue
            if self._has_room(directory.above):
                self._bound(directory)
            else:
                self._leave(path, counts=False)

    @staticmethod
    def _still_there(directory: _Directory) -> bool:
        if directory.above is None:
            return True
        try:
            return os.stat(directory.name, dir_fd=directory.above.fd, follow_symlinks=False).st_ino == directory.id
        except OSError:
            return False

    def _children(self, directory: _Directory) -> set[str]:
        """Names of the directories below; of a longer list of another user's the known ones and some others."""
        names = self._list(directory)
        if directory.boundary is None:
            return set(names)
        most = _MOST_LISTED * self._share_of_owner
        listed = set(islice(names, most))
        if len(listed) < most:
            return listed
        return listed | {name for name in directory.children - listed if self._is_child(directory, name)}

    @staticmethod
    def _is_child(directory: _Directory, name: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def _list(self, directory: _Directory) -> Iterator[str]:
        try:
            with os.scandir(directory.fd) as entries:
                yield from (entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError as error:  # mostly removed while it was listed
            if error.errno in OUT_OF_DESCRIPTORS:
                self.unopened += 1
                yield from directory.children

    def _leave(self, path: str, *, counts: bool = True) -> None:
        """Drop a directory and all below it; `counts` unless the boundaries are being found anew."""
        left = [path]
        while left:
            path = left.pop()
            directory = self._directories.pop(path, None)
            if directory is None:
                continue
            left += [_join(path, name) for name in directory.children]
            os.close(directory.fd)
            if counts and directory.boundary is not None and directory.boundary is not directory:
                directory.boundary.members -= 1
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
