"""A thin ctypes binding of libbpf: calls that raise `BpfError`, run-time statistics, programs made of instructions.

`probes/bpf_object.py` has object files, `probes/bpf_map.py` maps as numpy arrays; nothing above these three handles C
pointers. Attachments are file descriptors of this process: when it dies, the kernel takes programs and maps with it.
"""

import ctypes
import ctypes.util
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from api.plugin import Unsupported

LIBRARY_NAMES = ("libbpf.so.1", "libbpf.so.0")

_PRINT_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_SAMPLE_FN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


_PROG_TYPE_SCHED_CLS, _PROG_TYPE_CGROUP_SKB = 3, 8
_MAP_TYPE_ARRAY = 2
_INSTRUCTION_BYTES = 8
_CGROUP_INET_INGRESS, _TCX_INGRESS, _TCX_EGRESS = 0, 46, 47


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
            "bpf_program__attach_iter": (pointer, [pointer, pointer]),
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


def attach_to_departures(program_fd: int, interface: int) -> int:
    """Run a classifier on what leaves by an interface, while the returned descriptor is open (tcx, Linux 6.6)."""
    return int(library().call("bpf_link_create", program_fd, interface, _TCX_EGRESS, None))


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


def enable_stats() -> int:
    """Switch the kernel's BPF run-time statistics on while the returned descriptor is open."""
    return int(library().call("bpf_enable_stats", 0))
