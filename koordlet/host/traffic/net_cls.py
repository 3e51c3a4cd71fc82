"""net_cls.classid of a v1 cgroup and those below, which marks their traffic.

The kernel copies the classid when a cgroup is made, and never afterwards. So a class sets it in each cgroup below as
well, but not in those that have a class of their own; when it is removed, they get the classid of their parent.
"""

from pathlib import Path

from koordlet.host.files import HostError
from koordlet.host.traffic.classes import MAJOR

_FILE = "net_cls.classid"
_PASSES = 4


def classid_of(directory: Path) -> int | None:
    """Classid of a cgroup; 0 is none, None if the cgroup is gone."""
    try:
        return int((directory / _FILE).read_text())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(directory / _FILE, "read", error.errno or 0) from error


def is_foreign(classid: int) -> bool:
    """Return whether another program set it."""
    return classid != 0 and classid >> 16 != MAJOR


def set_classids(directory: Path, classid: int) -> None:
    """Set the classid of a cgroup and of those below that have no class of their own."""
    for _ in range(_PASSES):
        pending = [one for one, has in _subtree(directory, classid) if has != classid]
        for one in pending:
            _write(one, classid)
        # A cgroup may have been made below one that had no classid yet.
        if not pending:
            return


def clear_classids(directory: Path, classid: int) -> None:
    """Remove a classid: cgroups that had it get the one that the parent has of ours."""
    above = classid_of(directory.parent) or 0
    inherited = 0 if is_foreign(above) else above
    for one, has in _subtree(directory, classid):
        if has == classid:
            _write(one, inherited)


def _subtree(directory: Path, classid: int) -> list[tuple[Path, int]]:
    """Cgroups of a class with their classids, from the top: below one, those with the same, none, or `classid`."""
    top = classid_of(directory)
    if top is None or is_foreign(top):
        return []
    found, pending = [], [(directory, top)]
    while pending:
        one, has = pending.pop()
        found.append((one, has))
        for below in sorted(path for path in one.iterdir() if path.is_dir()):
            its = classid_of(below)
            if its is not None and its in (0, has, classid):
                pending.append((below, its))
    return found


def _write(directory: Path, classid: int) -> None:
    try:
        (directory / _FILE).write_text(str(classid))
    except FileNotFoundError:
        return
    except OSError as error:
        raise HostError(directory / _FILE, f"write {classid:#x} to", error.errno or 0) from error
