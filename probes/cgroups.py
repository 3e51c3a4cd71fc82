"""The cpu hierarchy as directories: where it is mounted, which of its cgroups match, whose threads they hold."""

import fnmatch
from collections.abc import Iterable, Iterator
from pathlib import Path

from api.plugin import Unsupported


def cgroup_id(directory: Path) -> int:
    """The cgroup's id; 0 when it vanished."""
    try:
        return directory.stat().st_ino
    except FileNotFoundError:
        return 0


def cpu_mount(mounts: str) -> Path:
    """Mount point of the hierarchy with the cpu controller, from /proc/self/mounts; raises Unsupported without one."""
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
    """Topmost directories below `mount` whose path matches a glob."""
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
    """Thread ids of a cgroup and all below it; what vanishes meanwhile is left out."""
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
