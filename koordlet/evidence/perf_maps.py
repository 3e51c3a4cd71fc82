"""Functions that a program compiled at run time, from the file it keeps for `perf`: /tmp/perf-PID.map, line by line
start, size and name (tools/perf/Documentation/jit-interface.txt of the kernel). Python 3.12 writes it under -X perf.
"""

import re

import numpy as np

from koordlet.evidence.elf_symbols import MAX_NAME_BYTES, Functions

MAX_BYTES = 16 << 20
_LINE = re.compile(rb"^(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) ([^\n\0]+)$", re.MULTILINE)


def parse_perf_map(content: bytes) -> Functions | None:
    """The functions; None where no line is one. Of two at an address the later one counts."""
    latest = {int(start, 16): (int(size, 16), name[:MAX_NAME_BYTES]) for start, size, name in _LINE.findall(content)}
    if not latest:
        return None
    starts = sorted(latest)
    names = b"\0".join(latest[start][1] for start in starts) + b"\0"
    lengths = np.array([len(latest[start][1]) + 1 for start in starts], dtype=np.uint32)
    return Functions(
        np.array(starts, dtype=np.uint64),
        np.array([latest[start][0] for start in starts], dtype=np.uint64),
        np.cumsum(lengths, dtype=np.uint32) - lengths,
        names,
    )
