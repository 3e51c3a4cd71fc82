"""Functions of an ELF file by address: symbol tables, those of the dynamic linker where it is stripped.

Files come from containers, so nothing in them is trusted: tables beyond a size are left out, and whatever goes wrong
in reading is a ValueError. Files are read, never mapped: one that shrinks meanwhile must not end the agent. The bytes
read of one file and the time for it are bounded, whatever it says of itself.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import SEEK_SET, BytesIO
from typing import IO, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

MAX_TABLE_BYTES = 48 << 20
MAX_READ_BYTES = 128 << 20
"""Of one file, again and again the same bytes included."""
MAX_SECTIONS = 4096
MAX_NAME_BYTES = 200
_MAX_PACKED_BYTES = 4 << 20
_MAX_UNPACKER_BYTES = 80 << 20
"""As `xz -9` needs."""
_ADDRESS_MASK = (1 << 64) - 1
_FUNCTION, _INDIRECT = 2, 10
_SYMBOL_64 = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_SYMBOL_32 = np.dtype(
    [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
)


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions sorted by address."""

    starts: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    """0 where the file does not say."""
    names_at: NDArray[np.uint32]
    names: bytes

    def at(self, address: int) -> str | None:
        """Name of the function that holds the address; one of unknown size ends where the next begins."""
        place = int(np.searchsorted(self.starts, np.uint64(address), side="right")) - 1
        if place < 0:
            return None
        size = int(self.sizes[place])
        if size and address >= int(self.starts[place]) + size:
            return None
        begin = int(self.names_at[place])
        end = self.names.find(b"\0", begin, begin + MAX_NAME_BYTES)
        return printable(self.names[begin : end if end >= 0 else begin + MAX_NAME_BYTES]) or None


class _Section(Protocol):
    def __getitem__(self, key: str) -> Any: ...

    def data(self) -> bytes: ...


class _BoundedStream:
    """The part of a file that the library uses, until as much was read as one file is worth, or the time is over."""

    def __init__(self, stream: IO[bytes], until: float) -> None:
        self._stream, self._until = stream, until
        self._left = MAX_READ_BYTES

    def read(self, length: int) -> bytes:
        self._left -= length
        if not 0 <= length <= MAX_TABLE_BYTES or self._left < 0:
            raise ValueError("too much of it would be read")
        if time.monotonic() >= self._until:
            raise ValueError("there is no time left for it")
        return self._stream.read(length)

    def seek(self, place: int, whence: int = SEEK_SET) -> int:
        return self._stream.seek(place, whence)

    def tell(self) -> int:
        return self._stream.tell()


class ElfImage:
    """One little-endian file: its build id and segments at once, its symbols when they are asked for.

    Raises ValueError for any other file, ImportError without pyelftools.
    """

    def __init__(self, stream: IO[bytes], until: float = math.inf) -> None:
        """Nothing is read after `until`, a time of the monotonic clock."""
        with _refusing():
            self._elf, self._until = _elf_of(stream, until), until
            self._segments = tuple(
                (int(segment["p_offset"]), int(segment["p_filesz"]), int(segment["p_vaddr"]))
                for segment in self._elf.iter_segments()
                if segment["p_type"] == "PT_LOAD"
            )
            note = self._elf.get_section_by_name(".note.gnu.build-id")
            self.build_id = _build_id(_bytes_of(note)) if note is not None else ""
            """In hexadecimal digits; empty where the file has none."""

    def address_of(self, offset: int) -> int | None:
        """Address in the file's own terms of a byte of the file."""
        for begin, length, address in self._segments:
            if begin <= offset < begin + length:
                return (address + offset - begin) & _ADDRESS_MASK
        return None

    def tables(self) -> tuple[Functions, ...]:
        """Functions of all tables, the longest first: of a stripped file exported ones alone."""
        with _refusing():
            found = _tables(self._elf, ("SHT_SYMTAB", "SHT_DYNSYM"))
            packed = self._elf.get_section_by_name(".gnu_debugdata")
            if packed is not None:
                found += _packed_tables(_bytes_of(packed), self._until)
        return tuple(sorted(found, key=lambda table: -len(table.starts)))


@contextmanager
def _refusing() -> Iterator[None]:
    """Whatever the library meets in a hostile file becomes a ValueError."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"no usable ELF file: {type(error).__name__}: {error}") from error


def _elf_of(stream: IO[bytes], until: float) -> Any:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(cast("IO[bytes]", _BoundedStream(stream, until)))
    if not elf.little_endian:
        raise ValueError("it is big-endian")
    # e_shnum is 0 where the first section tells their number.
    if max(elf.num_sections(), elf.num_segments()) > MAX_SECTIONS:
        raise ValueError("it has too many sections")
    return elf


def _tables(elf: Any, kinds: tuple[str, ...]) -> list[Functions]:
    """One table of each kind: a file has no more, but it may say so."""
    record = _SYMBOL_64 if elf.elfclass == 64 else _SYMBOL_32
    first: dict[str, _Section] = {}
    for section in elf.iter_sections():
        if section["sh_type"] in kinds:
            first.setdefault(section["sh_type"], section)
    found = (_functions(elf, section, record) for section in first.values())
    return [table for table in found if table is not None]


def _bytes_of(section: _Section) -> bytes:
    """Content of a section; empty where it is compressed or too large, or where the file has none of it."""
    if section["sh_flags"] & 0x800 or section["sh_size"] > MAX_TABLE_BYTES or section["sh_type"] == "SHT_NOBITS":
        return b""
    return section.data()


def _functions(elf: Any, section: _Section, record: np.dtype[Any]) -> Functions | None:
    content, names = _bytes_of(section), _bytes_of(elf.get_section(section["sh_link"]))
    symbols = np.frombuffer(content[: len(content) // record.itemsize * record.itemsize], dtype=record)
    kind = symbols["info"] & 0xF
    wanted = ((kind == _FUNCTION) | (kind == _INDIRECT)) & (symbols["section"] != 0) & (symbols["name"] < len(names))
    chosen = symbols[wanted]
    if not len(chosen):
        return None
    chosen = chosen[np.argsort(chosen["value"], kind="stable")]
    return Functions(chosen["value"].astype(np.uint64), chosen["size"].astype(np.uint64), chosen["name"].copy(), names)


def _packed_tables(content: bytes, until: float) -> list[Functions]:
    """Tables of the small debug file inside a stripped one, as Fedora builds them."""
    import lzma

    unpacker = lzma.LZMADecompressor(memlimit=_MAX_UNPACKER_BYTES)
    return _tables(_elf_of(BytesIO(unpacker.decompress(content, _MAX_PACKED_BYTES)), until), ("SHT_SYMTAB",))


def _build_id(note: bytes) -> str:
    """Description of the first note, as the linker writes it."""
    name_bytes, length = (int.from_bytes(note[at : at + 4], "little") for at in (0, 4))
    begin = 12 + -(-name_bytes // 4) * 4
    return note[begin : begin + length].hex() if 0 < length <= 64 else ""


def printable(name: bytes) -> str:
    """Text of a name from outside: what cannot be printed is a question mark."""
    return "".join(each if each.isprintable() else "?" for each in name.decode(errors="replace"))[:MAX_NAME_BYTES]
