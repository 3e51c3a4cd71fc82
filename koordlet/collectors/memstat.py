"""Memory of each cgroup: usage, limit, page cache, and the refaults and reclaim that its pages saw."""

import heapq
from collections.abc import Sequence

import numpy as np

from api.cgroup_path import ancestors
from api.frame import CgroupInfo, align
from api.plugin import Unsupported
from koordlet.collectors import FileCollector, GrowthWalk, Host, PerCgroupFile, Round
from koordlet.host.files import KeptFiles, flat_words

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


MOST_REFAULTING = 32
"""Cgroups whose memory.stat is read in each tick out of turn."""
FULL_RATIO = 0.8
"""Part of a limit from which the cgroups below it contend for the rest."""


class MemStat(FileCollector):
    """memory.stat costs tens of microseconds each, so cgroups are read in turn.

    Out of turn are usage of new cgroups and within a limit that is nearly reached, which says who fills it, and
    memory.stat of those whose pages come back: as far as `MOST_REFAULTING` reads find them from the root down, those
    first to which most came back a second. Where these have a limit, their own usage is read first, for a limit may be
    reached between two turns.
    """

    source = "memstat"

    def __init__(self, files: Sequence[PerCgroupFile]) -> None:
        super().__init__(files)
        self._growth = GrowthWalk()
        self._refaulting: frozenset[int] = frozenset()

    def read(self, work: Round, file: PerCgroupFile) -> None:
        usage, limit, stat = self._per_cgroup
        if file is usage:
            file.collect(self._refaulting_under_limits(work, limit), work.now_ns)
        if file is not stat:
            super().read(work, file)
            return
        file.collect(self._growth.walk(work, file, self._refaulting, MOST_REFAULTING), work.now_ns)
        left = [info for info in self.due(work, file) if not file.was_read(info.id, work.now_ns)]
        before = {info.id: (file.first_value(info.id), file.read_ns(info.id)) for info in left if file.has(info.id)}
        file.collect(left, work.now_ns)
        grown = {identity: file.growth(identity, *seen) for identity, seen in before.items()} | self._growth.grown
        most = heapq.nlargest(
            MOST_REFAULTING, (identity for identity, pages in grown.items() if pages), grown.__getitem__
        )
        self._refaulting = frozenset(most)

    def due(self, work: Round, file: PerCgroupFile) -> Sequence[CgroupInfo]:
        wanted = super().due(work, file)
        usage, limit, _ = self._per_cgroup
        if file is not usage or len(wanted) == len(work.cgroups):
            return wanted
        waiting = {info.id for info in wanted}
        full = self._full(work.cgroups, usage, limit)
        candidates = work.cgroups if full else file.unread(work.cgroups)
        more = [
            info
            for info in candidates
            if info.id not in waiting and (not file.has(info.id) or _is_within_any(info.path, full))
        ]
        return (*wanted, *more) if more else wanted

    def _refaulting_under_limits(self, work: Round, limit: PerCgroupFile) -> list[CgroupInfo]:
        found = {one for one in self._refaulting if limit.has(one) and limit.first_value(one) < np.inf}
        return [info for info in work.cgroups if info.id in found] if found else []

    @staticmethod
    def _full(cgroups: Sequence[CgroupInfo], usage: PerCgroupFile, limit: PerCgroupFile) -> frozenset[str]:
        """Paths whose usage, as last read, is near their limit."""
        limits = limit.table()
        used = align(limits.ids, usage.table())["memstat.usage_bytes"].astype(np.float64)
        most = limits.columns["memstat.limit_bytes"].astype(np.float64)
        identities = frozenset(limits.ids[used >= FULL_RATIO * most].tolist())
        return frozenset(info.path for info in cgroups if info.id in identities) if identities else frozenset()

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


def _is_within_any(path: str, tops: frozenset[str]) -> bool:
    return not tops.isdisjoint((path, *ancestors(path)))


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
    stat = flat_words(content)
    v1 = b"total_rss" in stat
    prefix = b"total_" if v1 else b""
    refaults = sum(
        int(stat.get(prefix + key, 0))
        for key in (b"workingset_refault_anon", b"workingset_refault_file", b"workingset_refault")
    )
    return (
        refaults,
        int(stat.get(prefix + b"pgmajfault", 0)),
        int(stat[b"total_cache" if v1 else b"file"]),
        int(stat[b"total_rss" if v1 else b"anon"]),
        sum(int(stat.get(prefix + key, 0)) for key in WITHOUT_CACHE),
    )
