"""Control groups of resctrl: membership of a cgroup's threads, moving them, making and removing groups.

Follows Documentation/filesystems/resctrl.rst. A refused command leaves its reason in info/last_cmd_status, which
every error here carries.
"""

import errno
import os
from collections.abc import Collection
from pathlib import Path

from koordlet.host.cgroups.processes import tids_below
from koordlet.host.files import HostError

RESERVED = ("info", "mon_groups", "mon_data")
_PASSES = 4


def group_names(root: Path) -> list[str]:
    """Every control group but the root's, sorted."""
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and entry.name not in RESERVED)


def group_directory(root: Path, group: str) -> Path:
    """Directory of a control group; "" is the root group. Raises ValueError for a name that cannot be one."""
    if group in (*RESERVED, ".", "..") or "/" in group:
        raise ValueError(f"{group!r} cannot name a resource group")
    return root / group if group else root


def groups_of(root: Path, cgroup: Path) -> frozenset[str]:
    """The control groups that the threads below a cgroup are in; empty without threads."""
    tids = tids_below(cgroup)
    return frozenset(_owners(root, tids).values())


def move_below(root: Path, cgroup: Path, group: str, expected: Collection[str]) -> None:
    """Move the threads below a cgroup that are in one of the `expected` groups. Raises HostError."""
    tasks = group_directory(root, group) / "tasks"
    for _ in range(_PASSES):
        owners = _owners(root, tids_below(cgroup))
        pending = [tid for tid, owner in owners.items() if owner in expected and owner != group]
        for tid in pending:
            _move(root, tasks, tid)
        # A thread may have been started by one that was not moved yet.
        if not pending:
            return


def _owners(root: Path, tids: set[int]) -> dict[int, str]:
    owners = dict.fromkeys(tids, "")
    for name in group_names(root):
        try:
            members = set(map(int, (root / name / "tasks").read_text().split()))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                continue
            raise
        owners |= dict.fromkeys(tids & members, name)
    return owners


def _move(root: Path, tasks: Path, tid: int) -> None:
    try:
        _command(tasks, f"{tid}\n")
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise refusal(root, tasks, "move a task by", error) from error


def _command(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def make_group(directory: Path) -> None:
    """Make a control group, if it is not there. Raises HostError (ENOSPC: no CLOSID is free)."""
    try:
        directory.mkdir()
    except FileExistsError:
        return
    except OSError as error:
        raise refusal(directory.parent, directory, "make", error) from error


def remove_group(directory: Path) -> None:
    """Remove a control group; its tasks go to the root group."""
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise refusal(directory.parent, directory, "remove", error) from error


def refusal(root: Path, path: Path, operation: str, error: OSError) -> HostError:
    """The error, with the reason in info/last_cmd_status."""
    try:
        said = (root / "info/last_cmd_status").read_text().strip()
    except OSError:
        said = ""
    detail = f"{os.strerror(error.errno or errno.EIO)}{f': {said}' if said and said != 'ok' else ''}"
    return HostError(path, operation, error.errno or errno.EIO, detail)
