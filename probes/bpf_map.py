"""BPF maps as numpy arrays."""

import ctypes
import errno
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.libbpf import BpfError, library, possible_cpus

_BPF_NOEXIST = 1
_PER_CPU_TYPES = {5, 6, 10, 21}
"""Map types with a value per possible CPU: PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH, PERCPU_CGROUP_STORAGE."""

_CALL_BYTES, _CALL_ENTRIES = 1 << 16, 256
"""Values and entries that one call reads: a kernel without preemption lets no other thread run on the CPU until the
call returns, however urgent."""


class _BatchOptions(ctypes.Structure):
    _fields_ = [("sz", ctypes.c_size_t), ("elem_flags", ctypes.c_uint64), ("flags", ctypes.c_uint64)]


class _MapInfo(ctypes.Structure):
    """Head of `struct bpf_map_info` (include/uapi/linux/bpf.h) as far as the name, which is cut to 15 letters."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("key_size", ctypes.c_uint32),
        ("value_size", ctypes.c_uint32),
        ("max_entries", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 16),
    ]


class Map:
    """One BPF map: read in batches into numpy arrays that are reused from read to read.

    Keys come as `key_dtype`, values as `value_dtype`; per-CPU maps give values of shape (n, possible CPUs).
    """

    def __init__(self, fd: int, key_dtype: np.dtype[Any], value_dtype: np.dtype[Any]) -> None:
        """Take any open map descriptor; raises ValueError when the sizes differ from the kernel's."""
        info, size = _MapInfo(), ctypes.c_uint32(ctypes.sizeof(_MapInfo))
        library().call("bpf_obj_get_info_by_fd", fd, ctypes.byref(info), ctypes.byref(size))
        self.name = info.name.decode()
        self.fd = fd
        self.max_entries = int(info.max_entries)
        self.per_cpu = info.type in _PER_CPU_TYPES
        key_size, value_size = int(info.key_size), int(info.value_size)
        if (key_dtype.itemsize, value_dtype.itemsize) != (key_size, value_size):
            raise ValueError(
                f"map {self.name}: kernel has key {key_size} and value {value_size} bytes, "
                f"declared are {key_dtype.itemsize} and {value_dtype.itemsize}"
            )
        self.key_dtype, self.value_dtype = key_dtype, value_dtype
        self._stride = -(-value_size // 8) * 8 if self.per_cpu else value_size
        self._width = possible_cpus() if self.per_cpu else 1
        self._step = min(max(_CALL_BYTES // (self._stride * self._width), 8), _CALL_ENTRIES)
        self._keys: NDArray[Any] = np.empty(0, dtype=key_dtype)
        self._raw: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def read(self, *, drain: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return all keys and values; with `drain`, each pair is deleted as it is read.

        The arrays are views of buffers that the next read overwrites.
        """
        self._reserve()
        lib = library()
        call = "bpf_map_lookup_and_delete_batch" if drain else "bpf_map_lookup_batch"
        token = (ctypes.c_uint8 * max(self.key_dtype.itemsize, 8))()
        options = _BatchOptions(ctypes.sizeof(_BatchOptions), 0, 0)
        keys_at, raw_at = self._keys.ctypes.data, self._raw.ctypes.data
        filled, started, step = 0, False, self._step
        while filled < len(self._keys):
            count = ctypes.c_uint32(min(step, len(self._keys) - filled))
            result = lib.raw(
                call,
                self.fd,
                ctypes.byref(token) if started else None,
                ctypes.byref(token),
                keys_at + filled * self.key_dtype.itemsize,
                raw_at + filled * self._stride * self._width,
                ctypes.byref(count),
                ctypes.byref(options),
            )
            number = ctypes.get_errno()
            if result < 0 and number not in (errno.ENOENT, errno.ENOSPC):
                raise BpfError(call, number)
            filled += count.value
            started = True
            if result < 0 and not count.value and number == errno.ENOSPC and step < len(self._keys):
                step = min(8 * step, len(self._keys))  # a bucket of the hash holds more than one call may return
            elif result < 0 and (number == errno.ENOENT or not count.value):
                break
        return self._keys[:filled], self._values(filled)

    def _reserve(self) -> None:
        if len(self._keys) < self.max_entries:
            self._keys = np.empty(self.max_entries, dtype=self.key_dtype)
            self._raw = np.empty(self.max_entries * self._stride * self._width, dtype=np.uint8)

    def _values(self, count: int) -> NDArray[Any]:
        raw = self._raw[: count * self._stride * self._width]
        if self._stride == self.value_dtype.itemsize:
            shaped = raw.view(self.value_dtype)
        else:
            padded = np.dtype({"names": ["v"], "formats": [self.value_dtype], "offsets": [0], "itemsize": self._stride})
            shaped = raw.view(padded)["v"]
        return shaped.reshape(count, self._width) if self.per_cpu else shaped

    def lookup(self, key: int | NDArray[Any]) -> NDArray[Any] | None:
        """Return the value of one key (shape (possible CPUs,) for per-CPU maps, else (1,)), None if absent."""
        value = np.zeros(self._stride * self._width, dtype=np.uint8)
        key_bytes = self._key(key)
        result = library().raw("bpf_map_lookup_elem", self.fd, key_bytes.ctypes.data, value.ctypes.data)
        if result < 0:
            number = ctypes.get_errno()
            if number == errno.ENOENT:
                return None
            raise BpfError("bpf_map_lookup_elem", number)
        self_view = value.reshape(self._width, self._stride)[:, : self.value_dtype.itemsize]
        return np.ascontiguousarray(self_view).view(self.value_dtype).reshape(self._width)

    def update(self, key: int | NDArray[Any], value: NDArray[Any]) -> None:
        """Set one value; `value` has shape () or (1,), for per-CPU maps (possible CPUs,)."""
        key_bytes = self._key(key)
        packed = np.zeros((self._width, self._stride), dtype=np.uint8)
        source = np.ascontiguousarray(value, dtype=self.value_dtype).reshape(-1, 1)
        packed[:, : self.value_dtype.itemsize] = source.view(np.uint8).reshape(len(source), -1)
        library().call("bpf_map_update_elem", self.fd, key_bytes.ctypes.data, packed.ctypes.data, 0)

    def reserve(self, keys: NDArray[Any]) -> int:
        """Make an entry of zeros for each key that has none; return how many found no room.

        The first one that a full map refuses is the last that is tried: the rest counts as refused, too.
        """
        lib, refused = library(), 0
        packed = np.ascontiguousarray(keys, dtype=self.key_dtype)
        zeros = np.zeros(self._stride * self._width, dtype=np.uint8)
        for row in range(len(packed)):
            address = packed.ctypes.data + row * self.key_dtype.itemsize
            made = lib.raw("bpf_map_update_elem", self.fd, address, zeros.ctypes.data, _BPF_NOEXIST)
            number = ctypes.get_errno() if made < 0 else errno.EEXIST
            if number in (errno.E2BIG, errno.ENOSPC):
                return refused + len(packed) - row
            refused += number != errno.EEXIST
        return refused

    def delete(self, keys: NDArray[Any]) -> int:
        """Delete the given keys one by one, skipping absent ones; returns how many were there."""
        lib, deleted = library(), 0
        packed = np.ascontiguousarray(keys, dtype=self.key_dtype)
        for row in range(len(packed)):
            address = packed.ctypes.data + row * self.key_dtype.itemsize
            deleted += lib.raw("bpf_map_delete_elem", self.fd, address) == 0
        return deleted

    def _key(self, key: int | NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(np.asarray(key, dtype=self.key_dtype)).reshape(1)
