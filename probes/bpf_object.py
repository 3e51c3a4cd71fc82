"""Object files of BPF programs: opened, tuned, loaded, attached, and closed with all that they hold."""

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probes.bpf_map import Map
from probes.libbpf import ProgramStats, library, program_stats


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


class _IteratorOptions(ctypes.Structure):
    """`struct bpf_iter_attach_opts` of libbpf; of `union bpf_iter_link_info`, the descriptor of a map."""

    _fields_ = [
        ("sz", ctypes.c_size_t),
        ("map_fd", ctypes.POINTER(ctypes.c_uint32)),
        ("link_info_len", ctypes.c_uint32),
    ]


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

    def iterate(self, program: str, over: str = "") -> bytes:
        """Run an iterator program once to its end, over the elements of a map if named; returns what it wrote."""
        options = None
        if over:
            map_fd = ctypes.c_uint32(self.map_fd(over))
            options = ctypes.byref(
                _IteratorOptions(ctypes.sizeof(_IteratorOptions), ctypes.pointer(map_fd), ctypes.sizeof(map_fd))
            )
        link = library().call("bpf_program__attach_iter", self._programs[program], options)
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
