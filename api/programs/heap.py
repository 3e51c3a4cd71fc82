"""The heap of the process: bounded before threads start, trimmed after BPF objects were loaded."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Options of mallopt(3)."""


def bound_heap() -> None:
    """Keep the heap of glibc small; called before any thread starts.

    glibc makes up to eight arenas a CPU for the threads of a process, and memory freed in one is of no use to the
    others (mallopt(3), M_ARENA_MAX). The mmap threshold is set because glibc's own grows to 32 MB with the arrays that
    are freed, and puts frames on the heap between small objects.
    """
    option = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if option:
        option(_M_ARENA_MAX, 2)
        option(_M_MMAP_THRESHOLD, 64 << 10)
        option(_M_TRIM_THRESHOLD, 256 << 10)


def release_heap() -> None:
    """Hand freed memory back to the kernel: loading parses some megabytes of BTF for each object."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim:
        trim(0)
