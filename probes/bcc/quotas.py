"""Cgroups that a CPU quota can hold back: those that have one, and all below them."""

import os
from collections.abc import Iterator
from pathlib import Path

from probes.cgroups import cgroup_id

QUOTA_FILES = (("cpu.max", b"max"), ("cpu.cfs_quota_us", b"-1"))
"""On v2 and v1: the file, and what it begins with where there is no limit."""


def under_quota(mount: Path) -> frozenset[int]:
    """Return ids of the cgroups with a quota of their own or above; reads one small file for each."""
    return frozenset(filter(None, (cgroup_id(Path(directory)) for directory in _limited(str(mount), above=False))))


def _limited(directory: str, *, above: bool) -> Iterator[str]:
    limited = above or has_quota(directory)
    if limited:
        yield directory
    try:
        with os.scandir(directory) as entries:
            children = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return
    for child in children:
        yield from _limited(child, above=limited)


def has_quota(directory: str) -> bool:
    """Return whether the cgroup itself is limited; False when it is gone."""
    for name, unlimited in QUOTA_FILES:
        try:
            descriptor = os.open(f"{directory}/{name}", os.O_RDONLY)
        except OSError:
            continue
        try:
            return not os.read(descriptor, 64).startswith(unlimited)
        except OSError:
            continue
        finally:
            os.close(descriptor)
    return False
