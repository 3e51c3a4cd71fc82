"""Directories of the cpu hierarchy: its mount point, the cgroups that match a glob, the threads of a cgroup."""

import fnmatch
from collections.abc import Iterable, Iterator
from pathlib import Path

from api.plugin import Unsupported


def cgroup_id(directory: Path) -> int:
    """Return the id of the cgroup; 0 when it is gone."""
    try:
        return directory.stat().st_ino
    except FileNotFoundError:
        return 0


def cpu_mount(mounts: str) -> Path:
    """Return the mount point of the cpu controller's hierarchy in /proc/self/mounts; raises Unsupported without one."""
    unified = None
    for line in mounts.splitlines():
        _, target, kind, options = line.split()[:4]
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(target)
        if kind == "cgroup2":
            unified = unified or Path(target)
    if unified is None:
        raise Unsupported("no cgroup hierarchy with the cpu controller is mounted")
    return unified


def matching(mount: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """Return the topmost directories below `mount` whose path matches a glob."""
    pending = [mount]
    while pending:
        try:
            children = [entry for entry in pending.pop().iterdir() if entry.is_dir()]
        except FileNotFoundError:
            continue
        for child in children:
            path = f"/{child.relative_to(mount)}"
            if any(fnmatch.fnmatchcase(path, pattern.strip()) for pattern in patterns):
                yield child
            else:
                pending.append(child)


def threads_below(directory: Path) -> frozenset[int]:
    """Return thread ids of a cgroup and all below it; those that exit meanwhile are left out."""
    tids: set[int] = set()
    pending = [directory]
    while pending:
        current = pending.pop()
        for name in ("cgroup.threads", "tasks"):  # v2, v1
            try:
                tids.update(map(int, (current / name).read_text().split()))
                break
            except OSError:
                continue
        try:
            pending += [entry for entry in current.iterdir() if entry.is_dir()]
        except FileNotFoundError:
            continue
    return frozenset(tids)
