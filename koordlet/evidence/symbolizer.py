"""Names for the addresses of stacks: mapped files by build id, code compiled at run time by perf maps, the kernel."""

import math
import os
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from detector.breaks import no_breaks
from koordlet.evidence.elf_symbols import ElfImage, Functions, printable
from koordlet.evidence.kernel_symbols import KernelSymbols
from koordlet.evidence.perf_maps import PerfMaps
from koordlet.host.files import HostTree
from koordlet.host.process_files import (
    Mapping,
    executable_mappings,
    open_below_root,
    open_mapped,
    pid_inside,
    process_name,
)

_MAX_FILES = 64
_MAX_NAMES = 16384
"""Of one file."""
_MAX_PROCESSES = 256
_COMPILED_INTO = ("/dev/zero", "/memfd:", "/SYSV")
"""Shared memory without a file, which compilers at run time use."""
_DEBUG_DIRECTORY = "/usr/lib/debug/.build-id"
KERNEL_SUFFIX = "_[k]"

_FileVersion = tuple[int, int, int, int, str]
"""Device, inode, size, time of change and build id."""


@dataclass(slots=True)
class _Process:
    name: str
    inner_pid: int
    mappings: tuple[Mapping, ...]
    starts: list[int] = field(default_factory=list)

    def mapping_at(self, address: int) -> Mapping | None:
        place = bisect_right(self.starts, address) - 1
        found = self.mappings[place] if place >= 0 else None
        return found if found is not None and address < found.end else None


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of a stack; `is_named` is false where only the file is known, or nothing."""

    text: str
    is_named: bool


class Symbolizer:
    """Names of one host's processes and kernel. Names are kept by version of a file; processes only until `forget`."""

    def __init__(self, tree: HostTree, between: Callable[[], None] = no_breaks) -> None:
        """`between` is called between parts of longer work."""
        self._tree, self._between = tree, between
        self._kernel = KernelSymbols(tree, between)
        self._processes: dict[int, _Process] = {}
        self._gone: set[int] = set()
        self._files: OrderedDict[_FileVersion, dict[int, str | None]] = OrderedDict()
        self._perf_maps = PerfMaps(between)
        self._until = math.inf
        self.notes: set[str] = set()
        """Reasons for missing names, until `forget`."""

    def name_for(self, seconds: float) -> None:
        """Look into files for so long from now on, until `forget`: what has no name then has none."""
        self._until = time.monotonic() + seconds

    def remember(self, pids: Iterable[int]) -> None:
        """Note the mappings of processes that are not known yet, while they live; one that is gone is asked once."""
        for pid in pids:
            if pid in self._processes or pid in self._gone or len(self._processes) >= _MAX_PROCESSES:
                continue
            name = process_name(self._tree, pid)
            if not name:
                self._gone.add(pid)
                continue
            mappings = executable_mappings(self._tree, pid)
            inner = pid_inside(self._tree, pid)
            self._processes[pid] = _Process(name, inner, mappings, [each.start for each in mappings])

    def forget(self) -> None:
        """Drop processes, notes and limits: numbers of processes are used again."""
        self._processes.clear()
        self._gone.clear()
        self.notes.clear()
        self._perf_maps = PerfMaps(self._between)
        self._until = math.inf

    def name_of(self, pid: int) -> str:
        """Name of a process; its number where it was gone too soon."""
        known = self._processes.get(pid)
        return printable(known.name.encode()) if known else f"[gone {pid}]"

    def user_frames(self, pid: int, addresses: Iterable[int]) -> dict[int, Frame]:
        """Frame by address in a process."""
        process = self._processes.get(pid)
        wanted = set(addresses)
        if process is None:
            return dict.fromkeys(wanted, Frame("[unknown]", is_named=False))
        by_mapping: dict[Mapping | None, list[int]] = {}
        for address in wanted:
            by_mapping.setdefault(process.mapping_at(address), []).append(address)
        frames: dict[int, Frame] = {}
        compiled: list[int] = []
        for mapping, within in by_mapping.items():
            self._between()
            if self._is_late():
                frames |= dict.fromkeys(within, Frame(_place(mapping), is_named=False))
                continue
            if mapping is None or not mapping.is_file:
                compiled += within
                continue
            names = self._names_in(pid, mapping, within)
            frames |= {address: Frame(name, is_named=True) for address, name in names.items() if name}
            compiled += [address for address in within if not names[address]]
        if compiled:
            frames |= self._compiled_frames(pid, process, compiled)
        return frames

    def kernel_frames(self, addresses: Iterable[int]) -> dict[int, Frame]:
        """Frame by address in the kernel."""
        wanted = set(addresses)
        names = self._kernel.resolve(wanted) if wanted else {}
        if self._kernel.reason:
            self.notes.add(self._kernel.reason)
        blank = Frame("[kernel]" + KERNEL_SUFFIX, is_named=False)
        return {
            address: Frame(names[address] + KERNEL_SUFFIX, is_named=True) if address in names else blank
            for address in wanted
        }

    def _is_late(self) -> bool:
        is_late = time.monotonic() >= self._until
        if is_late:
            self.notes.add("the time for names is over: the last files were not opened")
        return is_late

    def _compiled_frames(self, pid: int, process: _Process, addresses: Sequence[int]) -> dict[int, Frame]:
        names = self._perf_map_names(pid, process.inner_pid, addresses)
        frames = {}
        for address in addresses:
            name = names.get(address)
            mapping = process.mapping_at(address)
            frames[address] = Frame(name, is_named=True) if name else Frame(_place(mapping), is_named=False)
        return frames

    def _perf_map_names(self, pid: int, inner_pid: int, addresses: Sequence[int]) -> dict[int, str]:
        path = f"/tmp/perf-{inner_pid}.map"  # noqa: S108 - the convention
        descriptor = open_below_root(self._tree, pid, path)
        if descriptor is None:
            return {}
        try:
            with os.fdopen(descriptor, "rb") as stream:
                names, is_whole = self._perf_maps.names(stream, addresses)
        except OSError as error:
            self.notes.add(f"{path}: {error.strerror}")
            return {}
        if not is_whole:
            self.notes.add(f"{path}: too long, the rest is not read")
        return names

    def _names_in(self, pid: int, mapping: Mapping, addresses: Sequence[int]) -> dict[int, str | None]:
        """Function by address in one mapped file."""
        descriptor = open_mapped(self._tree, pid, mapping)
        if descriptor is None:
            return dict.fromkeys(addresses)
        try:
            with os.fdopen(descriptor, "rb") as stream:
                image = ElfImage(stream, self._until)
                status = os.fstat(stream.fileno())
                # Any file may claim the build id of another pod's.
                version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, image.build_id)
                known = self._known_names(version)
                places = {each: image.address_of(each - mapping.start + mapping.offset) for each in addresses}
                fresh = {place for place in places.values() if place is not None} - known.keys()
                if fresh:
                    if len(known) > _MAX_NAMES:
                        known.clear()
                        fresh = {place for place in places.values() if place is not None}
                    tables = (*image.tables(), *self._debug_tables(pid, image.build_id))
                    known |= {place: _first_name(tables, place) for place in fresh}
        except ImportError:
            self.notes.add("pyelftools is not installed: pip install pyelftools")
            return dict.fromkeys(addresses)
        except (ValueError, OSError, ArithmeticError, MemoryError, RecursionError) as error:
            if not mapping.path.startswith(_COMPILED_INTO):
                self.notes.add(f"{printable(mapping.path.encode())}: {printable(str(error).encode())}")
            return dict.fromkeys(addresses)
        return {each: known[place] if place is not None else None for each, place in places.items()}

    def _known_names(self, version: _FileVersion) -> dict[int, str | None]:
        known = self._files.setdefault(version, {})
        self._files.move_to_end(version)
        if len(self._files) > _MAX_FILES:
            self._files.popitem(last=False)
        return known

    def _debug_tables(self, pid: int, build_id: str) -> tuple[Functions, ...]:
        """Tables of the file's separate debug file, below the process's root or the host's."""
        if len(build_id) < 4:
            return ()
        path = f"{_DEBUG_DIRECTORY}/{build_id[:2]}/{build_id[2:]}.debug"
        for owner in (pid, 1):
            descriptor = open_below_root(self._tree, owner, path)
            if descriptor is not None:
                with os.fdopen(descriptor, "rb") as stream:
                    return ElfImage(stream, self._until).tables()
        return ()


def _place(mapping: Mapping | None) -> str:
    """All that is known of an address without a name: the file it lies in."""
    if mapping is None or not mapping.path:
        return "[unknown]"
    return f"[{printable(PurePosixPath(mapping.path.strip('[]')).name.encode())}]"


def _first_name(tables: Iterable[Functions], address: int) -> str | None:
    return next((name for table in tables if (name := table.at(address))), None)
