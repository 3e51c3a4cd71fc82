"""A thin ctypes binding of libbpf and of perf_event_open: the one file that handles C pointers.

Everything above it sees objects, maps as numpy arrays, and `BpfError` with the call and errno. Attachments
are file descriptors of this process: when it dies, the kernel takes programs and maps away with it.
"""

import ctypes
import ctypes.util
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from api.plugin import Unsupported

LIBRARY_NAMES = ("libbpf.so.1", "libbpf.so.0")

_PRINT_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_SAMPLE_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_BPF_NOEXIST = 1
_PER_CPU_TYPES = {5, 6, 10, 21}
"""Map types with a value per possible CPU: PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH, PERCPU_CGROUP_STORAGE."""

_CALL_BYTES, _CALL_ENTRIES = 1 << 16, 256
"""Values and entries that one call reads: a kernel without preemption lets no other thread run on the CPU until the
call returns, however urgent."""

_PROG_TYPE_SCHED_CLS, _PROG_TYPE_CGROUP_SKB = 3, 8
_MAP_TYPE_ARRAY = 2
_INSTRUCTION_BYTES = 8
_CGROUP_INET_INGRESS, _TCX_INGRESS = 0, 46


class BpfError(OSError):
    """A libbpf or bpf(2) call failed; `log` holds the messages of libbpf and the verifier."""

    def __init__(self, call: str, number: int, log: str = "") -> None:
        super().__init__(number, f"{call}: {os.strerror(number)}")
        self.call = call
        self.log = log


class _Library:
    """The library libbpf, loaded once, with its log captured per call."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._lib = self._open()
        libc = ctypes.CDLL(None, use_errno=True)
        self._vsnprintf = libc.vsnprintf
        self._vsnprintf.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p]
        self._print = _PRINT_FN(self._on_print)
        self._declare()
        self._lib.libbpf_set_print(self._print)
        self.possible_cpus = int(self._lib.libbpf_num_possible_cpus())

    @staticmethod
    def _open() -> Any:
        for name in LIBRARY_NAMES:
            try:
                return ctypes.CDLL(name, use_errno=True)
            except OSError:
                continue
        raise Unsupported("libbpf is not installed", "install libbpf1 (Debian/Ubuntu) or libbpf (Fedora)")

    def _on_print(self, level: int, text: bytes, args: int) -> int:
        if level > 1:  # debug
            return 0
        buffer = ctypes.create_string_buffer(1 << 20)  # a verifier log comes as one message
        self._vsnprintf(buffer, len(buffer), text, args)
        self.log.append(buffer.value.decode(errors="replace"))
        del self.log[:-200]
        return 0

    def _declare(self) -> None:
        pointer, integer, text, u32, size = (
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint32,
            ctypes.c_size_t,
        )
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "bpf_object__open_mem": (pointer, [pointer, size, pointer]),
            "bpf_object__load": (integer, [pointer]),
            "bpf_object__close": (None, [pointer]),
            "bpf_object__btf": (pointer, [pointer]),
            "btf__raw_data": (pointer, [pointer, ctypes.POINTER(u32)]),
            "bpf_object__next_map": (pointer, [pointer, pointer]),
            "bpf_object__next_program": (pointer, [pointer, pointer]),
            "bpf_map__name": (text, [pointer]),
            "bpf_map__fd": (integer, [pointer]),
            "bpf_map__type": (integer, [pointer]),
            "bpf_map__key_size": (u32, [pointer]),
            "bpf_map__value_size": (u32, [pointer]),
            "bpf_map__max_entries": (u32, [pointer]),
            "bpf_map__set_max_entries": (integer, [pointer, u32]),
            "bpf_map__set_type": (integer, [pointer, u32]),
            "bpf_map__set_map_flags": (integer, [pointer, u32]),
            "bpf_map__set_autocreate": (integer, [pointer, ctypes.c_bool]),
            "bpf_map__initial_value": (pointer, [pointer, ctypes.POINTER(size)]),
            "bpf_map__reuse_fd": (integer, [pointer, integer]),
            "bpf_program__name": (text, [pointer]),
            "bpf_program__section_name": (text, [pointer]),
            "bpf_program__fd": (integer, [pointer]),
            "bpf_program__set_autoload": (integer, [pointer, ctypes.c_bool]),
            "bpf_program__attach": (pointer, [pointer]),
            "bpf_program__attach_perf_event": (pointer, [pointer, integer]),
            "bpf_link__destroy": (integer, [pointer]),
            "bpf_link__fd": (integer, [pointer]),
            "bpf_iter_create": (integer, [integer]),
            "bpf_map_lookup_elem": (integer, [integer, pointer, pointer]),
            "bpf_map_update_elem": (integer, [integer, pointer, pointer, ctypes.c_uint64]),
            "bpf_map_delete_elem": (integer, [integer, pointer]),
            "bpf_map_get_next_key": (integer, [integer, pointer, pointer]),
            "bpf_map_lookup_batch": (
                integer,
                [integer, pointer, pointer, pointer, pointer, pointer, pointer],
            ),
            "bpf_map_lookup_and_delete_batch": (
                integer,
                [integer, pointer, pointer, pointer, pointer, pointer, pointer],
            ),
            "bpf_map_delete_batch": (integer, [integer, pointer, pointer, pointer]),
            "bpf_obj_get_info_by_fd": (integer, [integer, pointer, pointer]),
            "bpf_link_create": (integer, [integer, integer, integer, pointer]),
            "bpf_map_create": (integer, [integer, text, u32, u32, u32, pointer]),
            "bpf_prog_load": (integer, [integer, text, text, text, size, pointer]),
            "bpf_raw_tracepoint_open": (integer, [text, integer]),
            "bpf_enable_stats": (integer, [integer]),
            "bpf_prog_test_run_opts": (integer, [integer, pointer]),
            "ring_buffer__new": (pointer, [integer, _SAMPLE_FN, pointer, pointer]),
            "ring_buffer__poll": (integer, [pointer, integer]),
            "ring_buffer__consume": (integer, [pointer]),
            "ring_buffer__epoll_fd": (integer, [pointer]),
            "ring_buffer__free": (None, [pointer]),
            "libbpf_num_possible_cpus": (integer, []),
            "libbpf_set_print": (pointer, [_PRINT_FN]),
            "libbpf_version_string": (text, []),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._lib, name)
            function.restype, function.argtypes = result, arguments

    def call(self, name: str, *arguments: Any) -> Any:
        """Call `name`; a negative integer or a null pointer becomes a BpfError with the log since the call."""
        self.log.clear()
        ctypes.set_errno(0)
        function = getattr(self._lib, name)
        result = function(*arguments)
        failed = (function.restype is ctypes.c_int and result < 0) or (
            function.restype is ctypes.c_void_p and not result
        )
        if failed:
            number = ctypes.get_errno() or (-result if isinstance(result, int) else 0) or errno.EINVAL
            raise BpfError(name, number, "".join(self.log))
        return result

    def raw(self, name: str, *arguments: Any) -> Any:
        """Call `name` and return its result unchecked."""
        return getattr(self._lib, name)(*arguments)


_library: _Library | None = None


def library() -> _Library:
    """Return the library; raises Unsupported where libbpf is not installed."""
    global _library
    if _library is None:
        _library = _Library()
    return _library


def version() -> str:
    """Return libbpf's own version string, for example `v1.1`."""
    return str(library().raw("libbpf_version_string").decode())


def possible_cpus() -> int:
    """Return the number of CPUs the kernel may ever bring up; the width of per-CPU values."""
    return library().possible_cpus


class _BatchOptions(ctypes.Structure):
    _fields_ = [("sz", ctypes.c_size_t), ("elem_flags", ctypes.c_uint64), ("flags", ctypes.c_uint64)]


class _TestRunOptions(ctypes.Structure):
    """`struct bpf_test_run_opts` of libbpf."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    ]


_TEST_RUN_ON_CPU = 1


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
        filled, started, step = 0, False, self._step
        while filled < len(self._keys):
            count = ctypes.c_uint32(min(step, len(self._keys) - filled))
            result = lib.raw(
                call,
                self.fd,
                ctypes.byref(token) if started else None,
                ctypes.byref(token),
                self._keys.ctypes.data + filled * self.key_dtype.itemsize,
                self._raw.ctypes.data + filled * self._stride * self._width,
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


@dataclass(frozen=True, slots=True)
class ProgramStats:
    """Run time of one program as the kernel counts it (needs kernel.bpf_stats_enabled or `enable_stats`).

    `missed_count` is counted always (kernel 5.12 and later): events that found the program running on their CPU.
    """

    name: str
    run_time_ns: int
    run_count: int
    missed_count: int


class _ProgInfo(ctypes.Structure):
    """Head of `struct bpf_prog_info` (include/uapi/linux/bpf.h) as far as recursion_misses."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("tag", ctypes.c_uint8 * 8),
        ("jited_prog_len", ctypes.c_uint32),
        ("xlated_prog_len", ctypes.c_uint32),
        ("jited_prog_insns", ctypes.c_uint64),
        ("xlated_prog_insns", ctypes.c_uint64),
        ("load_time", ctypes.c_uint64),
        ("created_by_uid", ctypes.c_uint32),
        ("nr_map_ids", ctypes.c_uint32),
        ("map_ids", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),
        ("ifindex", ctypes.c_uint32),
        ("gpl_compatible", ctypes.c_uint32),
        ("netns_dev", ctypes.c_uint64),
        ("netns_ino", ctypes.c_uint64),
        ("nr_jited_ksyms", ctypes.c_uint32),
        ("nr_jited_func_lens", ctypes.c_uint32),
        ("jited_ksyms", ctypes.c_uint64),
        ("jited_func_lens", ctypes.c_uint64),
        ("btf_id", ctypes.c_uint32),
        ("func_info_rec_size", ctypes.c_uint32),
        ("func_info", ctypes.c_uint64),
        ("nr_func_info", ctypes.c_uint32),
        ("nr_line_info", ctypes.c_uint32),
        ("line_info", ctypes.c_uint64),
        ("jited_line_info", ctypes.c_uint64),
        ("nr_jited_line_info", ctypes.c_uint32),
        ("line_info_rec_size", ctypes.c_uint32),
        ("jited_line_info_rec_size", ctypes.c_uint32),
        ("nr_prog_tags", ctypes.c_uint32),
        ("prog_tags", ctypes.c_uint64),
        ("run_time_ns", ctypes.c_uint64),
        ("run_cnt", ctypes.c_uint64),
        ("recursion_misses", ctypes.c_uint64),
    ]


def program_stats(name: str, fd: int) -> ProgramStats:
    """Run time and counts of the loaded program behind a descriptor."""
    info, size = _ProgInfo(), ctypes.c_uint32(ctypes.sizeof(_ProgInfo))
    library().call("bpf_obj_get_info_by_fd", fd, ctypes.byref(info), ctypes.byref(size))
    return ProgramStats(name, info.run_time_ns, info.run_cnt, info.recursion_misses)


def open_raw_tracepoint(tracepoint: str, program_fd: int) -> int:
    """Attach a loaded raw-tracepoint program; it stays attached while the returned descriptor is open."""
    return int(library().call("bpf_raw_tracepoint_open", tracepoint.encode(), program_fd))


def load_classifier(name: str, instructions: bytes) -> int:
    """Load a traffic classifier from its instructions; returns a descriptor that the caller closes."""
    return _load(_PROG_TYPE_SCHED_CLS, name, instructions)


def _load(kind: int, name: str, instructions: bytes) -> int:
    if version().lstrip("v").startswith("0."):
        raise Unsupported(f"libbpf {version()} loads programs by another call", "install libbpf 1.0 or later")
    count = len(instructions) // _INSTRUCTION_BYTES
    return int(library().call("bpf_prog_load", kind, name.encode(), b"Dual BSD/GPL", instructions, count, None))


def load_cgroup_filter(name: str, instructions: bytes) -> int:
    """Load a filter of what arrives for a cgroup from its instructions; returns a descriptor that the caller closes."""
    return _load(_PROG_TYPE_CGROUP_SKB, name, instructions)


def attach_to_cgroup_arrivals(program_fd: int, directory_fd: int) -> int:
    """Run a filter on what arrives for a cgroup, while the returned descriptor is open."""
    return int(library().call("bpf_link_create", program_fd, directory_fd, _CGROUP_INET_INGRESS, None))


def create_array(name: str, value_bytes: int) -> int:
    """Make an array of one element, zeroed; returns a descriptor that the caller closes."""
    return int(library().call("bpf_map_create", _MAP_TYPE_ARRAY, name.encode(), 4, value_bytes, 1, None))


def set_array_value(array_fd: int, value: bytes) -> None:
    """Set the element of `create_array`."""
    key = ctypes.c_uint32(0)
    library().call("bpf_map_update_elem", array_fd, ctypes.byref(key), value, 0)


def attach_to_arrivals(program_fd: int, interface: int) -> int:
    """Run a classifier on what arrives at an interface, while the returned descriptor is open (tcx, Linux 6.6)."""
    return int(library().call("bpf_link_create", program_fd, interface, _TCX_INGRESS, None))


class RingBuffer:
    """A BPF ring buffer; `poll` hands each record's bytes to the callback."""

    def __init__(self, map_fd: int, callback: Callable[[bytes], None]) -> None:
        def on_sample(_context: int, data: int, size: int) -> int:
            callback(ctypes.string_at(data, size))
            return 0

        self._callback = _SAMPLE_FN(on_sample)
        self._handle = library().call("ring_buffer__new", map_fd, self._callback, None, None)

    @property
    def fd(self) -> int:
        """Descriptor that becomes readable when records wait."""
        return int(library().raw("ring_buffer__epoll_fd", self._handle))

    def poll(self, timeout_ms: int) -> int:
        """Wait up to `timeout_ms` and deliver what is there; returns the number of records."""
        result = int(library().raw("ring_buffer__poll", self._handle, timeout_ms))
        return max(result, 0)

    def close(self) -> None:
        """Free the ring; idempotent."""
        if self._handle:
            library().raw("ring_buffer__free", self._handle)
            self._handle = None


class LoadedBpf(Protocol):
    """Loaded programs and maps as a probe uses them, whether libbpf or BCC loaded them."""

    def map(self, name: str, key_dtype: np.dtype[Any], value_dtype: np.dtype[Any]) -> Map:
        """A map as arrays; raises ValueError when the sizes differ from the kernel's."""

    def attach(self, program: str) -> int:
        """Attach one program; returns the link's descriptor. Raises BpfError."""

    def release(self, link_fd: int) -> None:
        """Undo one `attach`; the program stays loaded."""

    def stats(self) -> tuple[ProgramStats, ...]:
        """Run time and count of each program."""

    def close(self) -> None:
        """Detach and free everything; idempotent."""


class BpfObject:
    """A CO-RE object file: opened, tuned (rodata, map sizes), loaded, attached; closed with everything it holds."""

    def __init__(self, image: bytes, name: str) -> None:
        """Open the ELF image; raises BpfError when it is not a usable object."""
        self.name = name
        self._image = ctypes.create_string_buffer(image, len(image))
        self._handle: int | None = library().call("bpf_object__open_mem", self._image, len(image), None)
        self._maps = {library().raw("bpf_map__name", m).decode(): m for m in self._each("bpf_object__next_map")}
        self._programs = {
            library().raw("bpf_program__name", p).decode(): p for p in self._each("bpf_object__next_program")
        }
        self._links: list[int] = []
        self.map_kinds: dict[str, Callable[[int, np.dtype[Any], np.dtype[Any]], Map]] = {}
        """Classes of maps that are not read as `Map` reads them, by name."""

    @classmethod
    def open(cls, path: Path) -> "BpfObject":
        """Open an object file; raises OSError if it cannot be read, BpfError if it is not a BPF object."""
        return cls(path.read_bytes(), path.name)

    def _each(self, call: str) -> Iterator[int]:
        item = library().raw(call, self._handle, None)
        while item:
            yield item
            item = library().raw(call, self._handle, item)

    @property
    def program_names(self) -> tuple[str, ...]:
        """Names of all programs in the object."""
        return tuple(self._programs)

    def btf(self) -> bytes:
        """The object's own BTF, raw."""
        size = ctypes.c_uint32()
        btf = library().call("bpf_object__btf", self._handle)
        return ctypes.string_at(library().call("btf__raw_data", btf, ctypes.byref(size)), size.value)

    def resize(self, map_name: str, max_entries: int) -> None:
        """Set a map's size; before load only."""
        library().call("bpf_map__set_max_entries", self._maps[map_name], max_entries)

    def retype(self, map_name: str, map_type: int, flags: int) -> None:
        """Set a map's type and flags; before load only."""
        library().call("bpf_map__set_type", self._maps[map_name], map_type)
        library().call("bpf_map__set_map_flags", self._maps[map_name], flags)

    def without_map(self, map_name: str) -> None:
        """Do not create a map (its programs must not be loaded either)."""
        library().call("bpf_map__set_autocreate", self._maps[map_name], False)

    def without(self, *program_names: str) -> None:
        """Do not load these programs; before load only."""
        for program in program_names:
            library().call("bpf_program__set_autoload", self._programs[program], False)

    def set_rodata(self, values: dict[str, int]) -> None:
        """Set `const volatile` globals by name; before load only. Raises KeyError for an unknown name."""
        from probes.btf import Btf

        layout = Btf(self.btf()).variables(".rodata")
        handle = next(m for name, m in self._maps.items() if name.endswith(".rodata"))
        size = ctypes.c_size_t()
        address = library().call("bpf_map__initial_value", handle, ctypes.byref(size))
        for name, value in values.items():
            offset, width = layout[name]
            ctypes.memmove(address + offset, int(value).to_bytes(width, "little", signed=value < 0), width)

    def reuse(self, map_name: str, fd: int) -> None:
        """Use an existing map in place of the object's own; before load only."""
        library().call("bpf_map__reuse_fd", self._maps[map_name], fd)

    def load(self) -> None:
        """Create the maps and pass the verifier; raises BpfError with the verifier's log."""
        library().call("bpf_object__load", self._handle)

    def attach(self, program: str) -> int:
        """Attach one program by its section; returns the link's descriptor."""
        link = library().call("bpf_program__attach", self._programs[program])
        self._links.append(link)
        return int(library().raw("bpf_link__fd", link))

    def release(self, link_fd: int) -> None:
        """Undo one `attach` by the descriptor it returned; the program stays loaded."""
        for link in self._links:
            if int(library().raw("bpf_link__fd", link)) == link_fd:
                self._links.remove(link)
                library().raw("bpf_link__destroy", link)
                return

    def attach_perf_event(self, program: str, perf_fd: int) -> None:
        """Attach one program to an open perf event."""
        self._links.append(library().call("bpf_program__attach_perf_event", self._programs[program], perf_fd))

    def iterate(self, program: str) -> bytes:
        """Run an iterator program once to its end; returns what it wrote."""
        link = library().call("bpf_program__attach", self._programs[program])
        try:
            fd = library().call("bpf_iter_create", library().raw("bpf_link__fd", link))
            with os.fdopen(fd, "rb") as stream:
                return stream.read()
        finally:
            library().raw("bpf_link__destroy", link)

    def run(self, program: str, cpu: int | None = None) -> None:
        """Run a `raw_tp` program once, on this CPU or (interrupting it) on `cpu`; it need not be attached.

        Raises BpfError: ENXIO for an offline CPU.
        """
        options = _TestRunOptions(sz=ctypes.sizeof(_TestRunOptions))
        if cpu is not None:
            options.flags, options.cpu = _TEST_RUN_ON_CPU, cpu
        fd = int(library().raw("bpf_program__fd", self._programs[program]))
        library().call("bpf_prog_test_run_opts", fd, ctypes.byref(options))

    def detach(self) -> None:
        """Detach every program; maps stay readable."""
        while self._links:
            library().raw("bpf_link__destroy", self._links.pop())

    def map(self, name: str, key_dtype: np.dtype[Any], value_dtype: np.dtype[Any]) -> Map:
        """A loaded map as arrays; raises ValueError when the sizes differ from the kernel's."""
        return self.map_kinds.get(name, Map)(self.map_fd(name), key_dtype, value_dtype)

    def map_fd(self, name: str) -> int:
        """Descriptor of a loaded map."""
        return int(library().raw("bpf_map__fd", self._maps[name]))

    def stats(self) -> tuple[ProgramStats, ...]:
        """Run time and count of each loaded program."""
        gathered = []
        for name, program in self._programs.items():
            fd = int(library().raw("bpf_program__fd", program))
            if fd < 0:
                continue
            gathered.append(program_stats(name, fd))
        return tuple(gathered)

    def close(self) -> None:
        """Detach and free everything; idempotent."""
        self.detach()
        if self._handle:
            library().raw("bpf_object__close", self._handle)
            self._handle = None


def enable_stats() -> int:
    """Switch the kernel's BPF run-time statistics on while the returned descriptor is open."""
    return int(library().call("bpf_enable_stats", 0))
