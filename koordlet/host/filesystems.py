"""Usage of file systems."""

import os
from collections.abc import Iterable

from koordlet.host.files import HostTree


def used_ratio(tree: HostTree, paths: Iterable[str]) -> float | None:
    """Usage of the fullest of the file systems that hold `paths`, as df counts: without the blocks reserved for root.

    None where none of them can be asked. A network file system that does not answer would hold up the caller.
    """
    ratios = []
    for path in paths:
        try:
            found = os.statvfs(tree.path(path))
        except OSError:
            continue  # not on every node
        used = found.f_blocks - found.f_bfree
        if used + found.f_bavail:
            ratios.append(used / (used + found.f_bavail))
    return max(ratios, default=None)
