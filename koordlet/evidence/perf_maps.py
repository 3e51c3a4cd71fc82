"""Functions that a program compiled at run time, from the file it keeps for `perf`: /tmp/perf-PID.map, line by line
start, size and name (tools/perf/Documentation/jit-interface.txt of the kernel). Python 3.12 writes it under -X perf.

A container writes it, and may make it as long as it likes: it is read part by part, up to a size, and nothing of it is
kept but what lies nearest to the addresses that are asked for.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from typing import IO

from detector.breaks import no_breaks
from koordlet.evidence.elf_symbols import MAX_NAME_BYTES, printable

MAX_BYTES = 4 << 20
"""Of one map."""
MAX_BYTES_IN_ALL = 8 << 20
_PART_BYTES = 1 << 16
_LINE = re.compile(rb"^(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) ([^\n\0]+)$", re.MULTILINE)


class PerfMaps:
    """Reader of the maps of one measurement."""

    def __init__(self, between: Callable[[], None] = no_breaks) -> None:
        """`between` is called between parts of the reading."""
        self._between = between
        self._left = MAX_BYTES_IN_ALL

    def names(self, stream: IO[bytes], addresses: Collection[int]) -> tuple[dict[int, str], bool]:
        """Name by address, without those that no function holds; and whether the whole map was read.

        Of two functions at a start the later one counts; one of size 0 ends where the next begins.
        """
        limit = min(MAX_BYTES, self._left)
        nearest: dict[int, tuple[int, int, bytes]] = {}
        for part in self._parts(stream, limit):
            lines = [
                (int(start, 16), int(size, 16), name[:MAX_NAME_BYTES]) for start, size, name in _LINE.findall(part)
            ]
            lines.sort(key=lambda line: line[0])
            starts = [start for start, _, _ in lines]
            for address in addresses:
                place = bisect_right(starts, address) - 1
                if place >= 0 and (address not in nearest or starts[place] >= nearest[address][0]):
                    nearest[address] = lines[place]
        found = {
            address: text
            for address, (start, size, name) in nearest.items()
            if (not size or address < start + size) and (text := printable(name))
        }
        return found, not stream.read(1)

    def _parts(self, stream: IO[bytes], limit: int) -> Iterator[bytes]:
        """Whole lines, a break after each part: other threads of the agent wait meanwhile."""
        rest = b""
        while limit > 0 and (part := stream.read(min(_PART_BYTES, limit))):
            limit -= len(part)
            self._left -= len(part)
            lines, _, rest = (rest + part).rpartition(b"\n")
            yield lines
            self._between()
        yield rest
