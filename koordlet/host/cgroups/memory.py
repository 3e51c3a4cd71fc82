"""Present memory usage of cgroups, from files kept open, for decisions that cannot wait for the next collection."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from koordlet.host.files import HostError, KeptFiles, flat_keyed

_UNLIMITED_V1 = 0x7FFF_FFFF_FFFF_F000


class MemoryFiles:
    """Usage, limit and statistics of any cgroup below the memory controller's mount; None for one that is gone."""

    def __init__(self, mount: Path, *, v1: bool) -> None:
        usage, limit = ("memory.usage_in_bytes", "memory.limit_in_bytes") if v1 else ("memory.current", "memory.max")
        self._usage, self._limit, self._stat = (KeptFiles(mount, name) for name in (usage, limit, "memory.stat"))
        self._seen: set[str] = set()

    def usage_bytes(self, path: str) -> int | None:
        """All that is charged to it, page cache included."""
        content = self._read(self._usage, path)
        return int(content) if content else None

    def limit_bytes(self, path: str) -> int | None:
        """Its own limit; None where it has none."""
        content = self._read(self._limit, path)
        if not content or content.strip() == b"max":
            return None
        limit = int(content)
        return None if limit >= _UNLIMITED_V1 else limit

    def reclaimable_bytes(self, path: str, *, swap: bool = False) -> int | None:
        """Bytes that can be reclaimed at once, by the function of that name."""
        content = self._read(self._stat, path)
        return reclaimable_bytes(content, swap=swap) if content else None

    def keep(self, paths: Collection[str]) -> None:
        """Close the files of all others."""
        gone = self._seen.difference(paths)
        for path in gone:
            for files in (self._usage, self._limit, self._stat):
                files.drop(path)
        self._seen -= gone

    def _read(self, files: KeptFiles, path: str) -> bytes | None:
        self._seen.add(path)
        try:
            return files.read(path)
        except HostError:
            return None


@dataclass(frozen=True, slots=True)
class _Names:
    file: tuple[bytes, ...]
    unclean: tuple[bytes, ...]
    anonymous: tuple[bytes, ...]


_V1 = _Names(
    (b"total_inactive_file", b"total_active_file"), (b"total_dirty", b"total_writeback"), (b"total_inactive_anon",)
)
_V2 = _Names((b"inactive_file", b"active_file"), (b"file_dirty", b"file_writeback"), (b"inactive_anon",))


def reclaimable_bytes(stat: bytes, *, swap: bool = False) -> int:
    """Bytes of a memory.stat that can be reclaimed at once: clean page cache; with `swap` also cold anonymous memory.

    Raises ValueError for a text of another shape.
    """
    found = flat_keyed(stat)
    names = _V1 if b"total_rss" in found else _V2
    cache = sum(found.get(name, 0) for name in names.file) - sum(found.get(name, 0) for name in names.unclean)
    return max(cache, 0) + (sum(found.get(name, 0) for name in names.anonymous) if swap else 0)
