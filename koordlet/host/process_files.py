"""Files of one process as it sees them: executable mappings, mapped files, files below its own root.

A container chooses names and content of all of these. A path below a root is walked part by part, so that no symbolic
link leads out of it; only regular files are opened, and reads are bounded.
"""

import os
import stat
from dataclasses import dataclass

from koordlet.host.files import HostTree

TICK_NS = 10_000_000
"""Unit of the CPU times in /proc/stat and /proc/PID/stat: USER_HZ is 100 on every architecture that we build for."""
_MAPS_BYTES = 8 << 20
_MAX_LINKS = 16
_NAMED = os.O_PATH | os.O_CLOEXEC
"""Opens nothing yet: opening a device or a FIFO may have effects."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """One executable mapping."""

    start: int
    end: int
    offset: int
    """Of the file at `start`."""
    device: str
    inode: int
    path: str
    """As the process sees it; empty or bracketed where no file is mapped."""

    @property
    def is_file(self) -> bool:
        """Whether a file is mapped."""
        return self.inode != 0


def executable_mappings(tree: HostTree, pid: int) -> tuple[Mapping, ...]:
    """The process's executable mappings by address; empty where it is gone."""
    try:
        with tree.path(f"/proc/{pid}/maps").open("rb") as stream:
            content = stream.read(_MAPS_BYTES)
    except OSError:
        return ()
    return parse_maps(content)


def parse_maps(content: bytes) -> tuple[Mapping, ...]:
    """Executable mappings of /proc/PID/maps; lines of another shape are left out."""
    found = []
    for line in content.splitlines():
        words = line.split(None, 5)
        if len(words) < 5 or len(words[1]) < 4 or words[1][2:3] != b"x":
            continue
        first, _, last = words[0].partition(b"-")
        try:
            start, end, offset, inode = int(first, 16), int(last, 16), int(words[2], 16), int(words[4])
        except ValueError:
            continue
        path = words[5].decode(errors="replace").strip() if len(words) > 5 else ""
        found.append(Mapping(start, end, offset, words[3].decode(errors="replace"), inode, path))
    return tuple(found)


def process_name(tree: HostTree, pid: int) -> str:
    """Name of the process as the kernel has it; empty where it is gone."""
    return text_of(tree, pid, "comm").strip("\n")


def text_of(tree: HostTree, pid: int, name: str) -> str:
    """Content of a file of a process or thread; empty where it is gone or may not be read."""
    try:
        return tree.text(f"/proc/{pid}/{name}") or ""
    except OSError:
        return ""


def pid_inside(tree: HostTree, pid: int) -> int:
    """Number of the process in its own PID namespace; `pid` where the kernel does not say."""
    for line in text_of(tree, pid, "status").splitlines():
        if line.startswith("NSpid:"):
            words = line.split()
            return int(words[-1]) if len(words) > 1 and words[-1].isdigit() else pid
    return pid


def open_mapped(tree: HostTree, pid: int, mapping: Mapping) -> int | None:
    """Descriptor of the mapped file itself, even where its name is gone; None where it cannot be had."""
    try:
        named = os.open(tree.path(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}"), _NAMED)
    except OSError:
        return open_below_root(tree, pid, mapping.path.removesuffix(" (deleted)"))
    return _opened(named)


def open_below_root(tree: HostTree, pid: int, path: str) -> int | None:
    """Descriptor of a regular file below the root of a process; None where there is none or a link leads in circles."""
    try:
        top = os.open(tree.path(f"/proc/{pid}/root"), _NAMED | os.O_DIRECTORY)
    except OSError:
        return None
    here, left, links = [os.dup(top)], _parts(path), 0
    try:
        while left:
            part = left.pop(0)
            if part == "..":
                os.close(here.pop())
                here = here or [os.dup(top)]
                continue
            link = _link(part, here[-1])
            if link is not None:
                links += 1
                if links > _MAX_LINKS:
                    return None
                if link.startswith("/"):
                    for each in here[1:]:
                        os.close(each)
                    here = here[:1]
                left = _parts(link) + left
            elif left:
                here.append(os.open(part, _NAMED | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=here[-1]))
            else:
                return _opened(os.open(part, _NAMED | os.O_NOFOLLOW, dir_fd=here[-1]))
    except OSError:
        return None
    finally:
        for each in (top, *here):
            os.close(each)
    return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link(part: str, directory: int) -> str | None:
    try:
        return os.readlink(part, dir_fd=directory)
    except OSError:
        return None


def _opened(named: int) -> int | None:
    """Open what a descriptor names, where that is a regular file."""
    try:
        if not stat.S_ISREG(os.fstat(named).st_mode):
            return None
        return os.open(f"/proc/self/fd/{named}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        os.close(named)
