"""Memory stalls from a program compiled on the node: the columns of `probes.memory`.

The limit that stalls a task is inferred: it is the level with the least room when reclaim begins. So reclaim on
request (`memory.reclaim`) of a task within 2 MiB of a limit counts as a stall, and where two levels are
nearly full at once the wrong one may be named. The sum of the two limit causes is exact apart from the former. A global
stall begins with reclaim, and `Kernel.refusals` says so.
"""

from collections.abc import Mapping

from probes import memory
from probes.bcc import loader
from probes.probe import Kernel, ProbeLimits

_STALLS = {
    "limit": "mm_vmscan_memcg_reclaim",
    "global": "mm_vmscan_direct_reclaim",
    "compaction": "mm_compaction",
}
PROGRAMS: Mapping[str, str] = {
    "on_signal": "signal_generate",
    "on_victim": "mark_victim",
    "on_kswapd_wake": "mm_vmscan_kswapd_wake",
    "on_kswapd_sleep": "mm_vmscan_kswapd_sleep",
    **{f"on_{stall}_{edge}": f"{point}_{edge}" for stall, point in _STALLS.items() for edge in ("end", "begin")},
    memory.COUNT_PAGES: "mm_page_alloc",
}


class BccMemory(memory.Memory):
    """Needs raw tracepoints and the memory cgroup's counters as they are since 5.9."""

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "BccMemory":
        """Compile, attach all but the page counter; ends of stalls before their begins."""
        constants = {"NUM_LOST_PLACES": len(memory.LOST_PLACES), "MAX_CGROUPS": limits.max_cgroups}
        maps = ("cgroups", "allocators", "kswapd_wakes", "stalls", "lost")
        bpf = loader.load(loader.Source("memory", PROGRAMS, maps, constants))
        loader.attach(bpf, *(program for program in PROGRAMS if program != memory.COUNT_PAGES))
        kernel.refusals[memory.HELD_BACK] = memory.WHY_UNMEASURED
        return cls(bpf)
