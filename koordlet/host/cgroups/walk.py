"""The present cgroups of the cpu hierarchy from tick to tick, without walking the whole tree each time.

A kernfs directory's link count is two plus its children, so one fstat on a kept descriptor tells whether a
directory must be listed again. Listing every directory that has children in a slow rotation catches a removal and a
creation that cancelled out between two ticks, of one name too: a listing has the inodes. A directory is opened by its
name from its parent's descriptor: neither the length of a path nor its bytes matter. Paths are in the text form of
`api.cgroup_path`.

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

_LINKS_OF_LEAF = 2


@dataclass(slots=True)
class _Directory:
    fd: int
    id: int
    name: str
    """As the kernel has it, to be opened."""
    above: "_Directory | None"
    children: dict[str, int] = field(default_factory=dict)
    """Inode by name as the kernel has them: of one name another directory may come between two listings."""
    links: int = -1
    owner_uid: int = -1
    boundary: "_Directory | None" = None
    """The first directory on the way here, this one included, that belongs to another user; None if there is none."""
    members: int = 0
    """Of a boundary: the known directories below it."""

    @property
    def has_children(self) -> bool:
        """Whether there are directories below, also where they could not be listed; what had none has no others."""
        return bool(self.children) or self.links != _LINKS_OF_LEAF


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
            links = status.st_nlink
            in_turn = everything or (position + self._scans) % self._relist_every == 0
            relisted = in_turn and directory.has_children
            if relisted or not links or links != directory.links or status.st_uid != directory.owner_uid:
                self._revisit(path, directory, status, relisted=relisted)
        return CgroupChange(self._added, self._removed, self._owners)

    def relist(self) -> CgroupChange:
        """Return the changes that a listing of all directories with children shows, soon after a scan: what came in the
        place of another that went."""
        self._added, self._removed, self._owners = {}, {}, {}
        for path in [path for path, directory in self._directories.items() if directory.has_children]:
            directory = self._directories.get(path)
            if directory is None:
                continue
            try:
                links = os.fstat(directory.fd).st_nlink
            except OSError:
                self._leave(path)
                continue
            self._relist(path, directory, links)
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

    def _revisit(self, path: str, directory: _Directory, status: os.stat_result, *, relisted: bool) -> None:
        links = status.st_nlink
        if not links:
            self._leave(path)
            return
        if status.st_uid != directory.owner_uid:
            directory.owner_uid = self._owners[directory.id] = status.st_uid
            self._rebound()
            if path not in self._directories:
                return
        if links != directory.links or relisted:
            self._relist(path, directory, links)

    def _relist(self, path: str, directory: _Directory, links: int) -> None:
        directory.links = links
        present = self._children(directory)
        for name in [name for name, inode in directory.children.items() if present.get(name) != inode]:
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

    def _children(self, directory: _Directory) -> dict[str, int]:
        """Inodes by name of the directories below; of a longer list of another user's the known and some others."""
        listing = self._list(directory)
        if directory.boundary is None:
            return dict(listing)
        most = _MOST_LISTED * self._share_of_owner
        listed = dict(islice(listing, most))
        if len(listed) < most:
            return listed
        beyond = {name: _inode(directory, name) for name in directory.children if name not in listed}
        return listed | {name: inode for name, inode in beyond.items() if inode is not None}

    def _list(self, directory: _Directory) -> Iterator[tuple[str, int]]:
        try:
            with os.scandir(directory.fd) as entries:
                yield from ((entry.name, entry.inode()) for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError as error:  # mostly removed while it was listed
            if error.errno in OUT_OF_DESCRIPTORS:
                self.unopened += 1
                yield from directory.children.items()

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


def _inode(directory: _Directory, name: str) -> int | None:
    """Inode of a directory below another; None where there is none of that name."""
    try:
        status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino if stat.S_ISDIR(status.st_mode) else None
