"""Functions of the kernel by address, from /proc/kallsyms: read when an address is asked for the first time."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from detector.breaks import no_breaks
from koordlet.host.files import HostTree

_LINE = re.compile(rb"^([0-9a-f]{16}) [tTwW] (\S+)", re.MULTILINE)
_MAX_KNOWN = 16384
_PART_BYTES = 1 << 16
_HIDDEN = "the kernel hides its addresses: set kernel.kptr_restrict to 1, or give the agent CAP_SYSLOG"


class KernelSymbols:
    """Names found so far; the table itself, some megabytes, is not kept."""

    def __init__(self, tree: HostTree, between: Callable[[], None] = no_breaks) -> None:
        """`between` is called between parts of the reading."""
        self._tree, self._between = tree, between
        self._known: dict[int, str] = {}
        self.reason = ""
        """Reason why there are no names; empty where there are."""

    def resolve(self, addresses: Iterable[int]) -> dict[int, str]:
        """Name by address, without those that no function holds."""
        wanted = set(addresses)
        fresh = wanted - self._known.keys()
        if fresh:
            if len(self._known) + len(fresh) > _MAX_KNOWN:
                self._known.clear()
                fresh = wanted
            self._known.update(self._read(sorted(fresh)))
        return {address: name for address in wanted if (name := self._known.get(address))}

    def _read(self, addresses: list[int]) -> dict[int, str]:
        """The last function at or before each address, found part by part: the file is in no order."""
        nearest = dict.fromkeys(addresses, (0, b""))
        try:
            for part in self._parts():
                symbols = sorted((int(start, 16), name) for start, name in _LINE.findall(part))
                starts = [start for start, _ in symbols]
                for address in addresses if symbols and symbols[0][0] <= addresses[-1] else ():
                    place = bisect_right(starts, address) - 1
                    if place >= 0 and starts[place] > nearest[address][0]:
                        nearest[address] = symbols[place]
        except OSError as error:
            self.reason = f"/proc/kallsyms cannot be read: {error.strerror}"
            return {}
        is_hidden = not any(start for start, _ in nearest.values())
        self.reason = _HIDDEN if is_hidden else ""
        return {address: name.decode(errors="replace") for address, (start, name) in nearest.items() if start}

    def _parts(self) -> Iterator[bytes]:
        """Whole lines, a break after each part: other threads of the agent wait meanwhile."""
        rest = b""
        with self._tree.path("/proc/kallsyms").open("rb", buffering=0) as stream:
            while part := stream.read(_PART_BYTES):
                lines, _, rest = (rest + part).rpartition(b"\n")
                yield lines
                self._between()
        yield rest
