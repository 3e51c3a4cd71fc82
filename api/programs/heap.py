"""The heap of the process: bounded before threads start, trimmed after BPF objects were loaded."""

import ctypes
from collections.abc import Mapping

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Options of mallopt(3)."""


def bound_arenas() -> None:
    """Have threads share the memory that they free; called before any thread starts.

    glibc makes up to eight arenas a CPU for the threads of a process, and memory freed in one is of no use to the
    others (mallopt(3), M_ARENA_MAX): with tens of threads free memory grows for as long as these do different things.
    """
    _set({_M_ARENA_MAX: 2})


def bound_heap() -> None:
    """Keep the heap of glibc small too, at the price of a system call for each larger array.

    The mmap threshold is set because glibc's own grows to 32 MB with the arrays that are freed, and puts frames on the
    heap between small objects.
    """
    bound_arenas()
    _set({_M_MMAP_THRESHOLD: 64 << 10, _M_TRIM_THRESHOLD: 256 << 10})


def release_heap() -> None:
    """Hand freed memory back to the kernel: loading parses some megabytes of BTF for each object."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim:
        trim(0)


def _set(options: Mapping[int, int]) -> None:
    change = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if change:
        for option, value in options.items():
            change(option, value)
