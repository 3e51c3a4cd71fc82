"""Memory of each cgroup: usage, limit, page cache, and the refaults and reclaim that its pages saw."""

from collections.abc import Sequence

from api.plugin import Unsupported
from koordlet.collectors import FileCollector, Host, PerCgroupFile
from koordlet.host.files import KeptFiles, flat_keyed

_UNLIMITED_V1 = 0x7FFF_FFFF_FFFF_F000
STAT_COLUMNS = (
    "memstat.refaults",
    "memstat.major_faults",
    "memstat.file_bytes",
    "memstat.anon_bytes",
    "memstat.without_cache_bytes",
)
WITHOUT_CACHE = (b"inactive_anon", b"active_anon", b"unevictable")
"""Lists of pages that are no page cache; shared memory is on them, while the kernel counts it as cache."""


class MemStat(FileCollector):
    """memory.stat costs tens of microseconds each, so cgroups are read in turn."""

    source = "memstat"

    @classmethod
    def open(cls, host: Host) -> "MemStat":
        """Raises Unsupported where no memory controller is mounted."""
        mount = host.hierarchies.memory
        if mount is None:
            raise Unsupported("no memory controller is mounted", "mount the memory controller (v1) or cgroup2")
        v2 = host.hierarchies.version == 2 and mount == host.hierarchies.unified
        usage, limit = ("memory.current", "memory.max") if v2 else ("memory.usage_in_bytes", "memory.limit_in_bytes")
        return cls(
            [
                PerCgroupFile(KeptFiles(mount, usage), ("memstat.usage_bytes",), parse_bytes),
                PerCgroupFile(KeptFiles(mount, limit), ("memstat.limit_bytes",), parse_limit),
                PerCgroupFile(KeptFiles(mount, "memory.stat"), STAT_COLUMNS, parse_memory_stat),
            ]
        )


def parse_bytes(content: bytes) -> tuple[float]:
    """A single number of bytes."""
    return (int(content),)


def parse_limit(content: bytes) -> tuple[float]:
    """A limit in bytes; infinity when there is none (`max`, or v1's page-aligned maximum)."""
    if content.strip() == b"max":
        return (float("inf"),)
    limit = int(content)
    return (float("inf") if limit >= _UNLIMITED_V1 else limit,)


def parse_memory_stat(content: bytes) -> Sequence[float]:
    """Refaults, major faults, page cache, anonymous bytes, all but page cache; v1 uses the `total_` figures."""
    stat = flat_keyed(content)
    v1 = b"total_rss" in stat
    prefix = b"total_" if v1 else b""
    refaults = sum(
        stat.get(prefix + key, 0)
        for key in (b"workingset_refault_anon", b"workingset_refault_file", b"workingset_refault")
    )
    return (
        refaults,
        stat.get(prefix + b"pgmajfault", 0),
        stat[b"total_cache" if v1 else b"file"],
        stat[b"total_rss" if v1 else b"anon"],
        sum(stat.get(prefix + key, 0) for key in WITHOUT_CACHE),
    )
