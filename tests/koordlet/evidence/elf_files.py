"""Small ELF files that say what a test wants."""

import io
import struct
from collections.abc import Sequence

SECTIONS_AT = 64


def elf(
    *sections: tuple[int, ...],
    count: int | None = None,
    segments: Sequence[tuple[int, int, int]] = (),
    rest: bytes = b"",
) -> io.BytesIO:
    """A file of 64 bits: sections as (name, kind, flags, address, offset, size, link), then the rest, then segments
    to be loaded as (offset, length, address)."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    told = len(sections) if count is None else count
    table = b"".join(struct.pack("<IIQQQQIIQQ", *each, 0, 1, 24) for each in sections)
    loads = b"".join(struct.pack("<IIQQQQQQ", 1, 5, at, to, to, size, size, 1) for at, size, to in segments)
    end = SECTIONS_AT + len(table) + len(rest)
    head = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, end, SECTIONS_AT, 0, 64, 56, len(segments), 64, told, 0)
    return io.BytesIO(ident + head + table + rest + loads)
