"""Maps without a kernel: what is done with its answers."""

import ctypes
import errno

import numpy as np
import pytest

from probes import bpf_map
from probes.bpf_map import Map


class Small:
    """Stands for the library, with one map of 8 entries."""

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self.calls = 0

    def raw(self, call: str, fd: int, key: int, value: int, flags: int) -> int:
        self.calls += 1
        wanted = ctypes.c_uint64.from_address(key).value
        if wanted in self.keys or len(self.keys) == 8:
            ctypes.set_errno(errno.EEXIST if wanted in self.keys else errno.E2BIG)
            return -1
        self.keys.add(wanted)
        return 0


def test_a_full_map_is_asked_once_more_and_the_rest_counts_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small()
    monkeypatch.setattr(bpf_map, "library", lambda: small)
    made = Map.__new__(Map)
    made.fd, made.key_dtype, made._stride, made._width = 3, np.dtype(np.uint64), 8, 1
    assert made.reserve(np.arange(8, dtype=np.uint64)) == 0
    assert made.reserve(np.arange(4, dtype=np.uint64)) == 0, "they are there"
    small.calls = 0
    assert made.reserve(np.arange(7, 1000, dtype=np.uint64)) == 992
    assert small.calls == 2
