"""Arenas of glibc's heap in a process, from its memory map."""

import re
from itertools import pairwise
from pathlib import Path

HEAP_BYTES = 64 << 20
"""Address space of an arena's heap, at a multiple of itself (glibc's HEAP_MAX_SIZE on 64 bits)."""
_LINE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) 0+ 00:00 0\s*$", re.MULTILINE)


def arenas_of(pid: int) -> int:
    """Return how many heaps beside the main one a process has."""
    found = [
        (int(begin, 16), int(end, 16), mode)
        for begin, end, mode in _LINE.findall(Path(f"/proc/{pid}/maps").read_text())
    ]
    return sum(
        mode == "rw-p" and rest == "---p" and end == begins and not begin % HEAP_BYTES and not ends % HEAP_BYTES
        for (begin, end, mode), (begins, ends, rest) in pairwise(found)
    )
