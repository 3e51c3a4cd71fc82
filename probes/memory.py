"""Time each cgroup's tasks stall to find memory, by cause, and the cgroups that took pages meanwhile.

Causes: the cgroup's own limit, an ancestor's limit, the node being short (`global`), and compaction that an allocation
waits for. A stall is counted while it lasts; compaction within reclaim belongs to that; a compaction stall is one pass
over one zone. A global stall includes the wait for kswapd before a task's own reclaim (half of the least free memory or
less is left), where the kernel's function can be traced; else `Kernel.refusals` says so. Reclaim asked for
(`memory.reclaim`, a limit lowered from outside) is no stall, nor is the sleep that `memory.high` adds after its
reclaim: no tracepoint shows it, pressure stall information does.

Blame is for global stalls: each read shares out what victims stalled since the last one by the pages that each cgroup
took from the node while it was short (a task in global reclaim, or kswapd awake). Allocation, not usage, is what drains
a node: a cgroup that streams files keeps its usage flat and yet takes every page. A victim's share of its own doing is
`memory.stall_global_self_ns`; that and `memory.blame` sum to `memory.stall_global_ns`.

Counting pages costs 60 ns a page (of about 2 us a fault), so its program is attached only from the read that finds the
node short until it has not been so for `QUIET_READS` reads. Stalls before the first count are blamed by the next one;
a burst that is over by then is blamed on `OTHER_ID`. The other programs run once a stall and cost 800 ns for its begin
and end together (kernel BPF statistics, `dd` reading a file of 3 GiB under a limit of 64 MiB; a stall takes 100 us).
From kernel 7.0 on, and in the traced function on every kernel, each of these has a second one (`probes.probe.AGAIN`)
and both cost another 325 ns; the page counter has none: what it misses is counted as lost, and shares bear it.

Refaults have no tracepoint; the kernel counts them in `memory.stat`, which a collector of the agent reads.
"""

import time
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, HOST, Reading, Table
from api.histogram import SLOTS
from api.metrics import MEMORY_CAUSES
from api.plugin import Unsupported
from probes.bpf_object import BpfObject, LoadedBpf
from probes.page_shares import PageShares
from probes.pairs import PairLedger
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, in_turn, load, open_object
from probes.shared_maps import share

U64 = np.dtype(np.uint64)
U32 = np.dtype(np.uint32)
CGROUP_RECORD = np.dtype(
    [
        ("stall_ns", U64, (len(MEMORY_CAUSES),)),
        ("stall_count", U64, (len(MEMORY_CAUSES),)),
        *((f"{cause}_hist", U64, (SLOTS,)) for cause in MEMORY_CAUSES),
        ("oom_kills", U64),
    ]
)
STALL_RECORD = np.dtype([("since_ns", U64), ("cgroup", U64), ("cause", U32), ("again", U32)])
LOST_PLACES = ("memory.stamp", "memory.cgroup", "memory.pages", "memory.oom_victim")
GLOBAL = MEMORY_CAUSES.index("global")

_STALLS = ("mm_vmscan_memcg_reclaim", "mm_vmscan_direct_reclaim", "mm_compaction")
TRACEPOINTS = (
    *(f"{stall}_{edge}" for stall in _STALLS for edge in ("begin", "end")),
    *("mm_vmscan_kswapd_wake", "mm_vmscan_kswapd_sleep", "mm_page_alloc", "mark_victim"),
)
KSWAPD_PROGRAMS = ("on_kswapd_wake", "on_kswapd_sleep")
PROGRAMS = ("on_limit_end", "on_limit_begin", "on_compaction_end", "on_compaction_begin")
TRACEPOINTS_OF_GLOBAL = ("on_global_end", "on_global_begin")
RECLAIM_FUNCTION = "try_to_free_pages"
TRACED = ("on_free_end_again", "on_free_end", "on_free_begin_again", "on_free_begin")
"""Programs of the function of global reclaim, in the order of attachment: the kernel runs the last one first."""
HELD_BACK = "memory.held_back"
"""The part of a global stall that lies before its tracepoint, in `Kernel.refusals`."""
WHY_UNMEASURED = "a task's wait for kswapd before its own reclaim is no part of its global stall"
COUNT_PAGES = "on_page_alloc"
QUIET_READS = 30
LONGEST_UNSEEN_NS = 60_000_000_000
"""A stall that seems to last longer has ended unseen."""
VICTIM_BY_TASK = ("on_victim",)
VICTIM_BY_ID = ("on_signal", "on_victim_id")


class GlobalBlame:
    """Victim-culprit totals of global stalls, from their cumulative times, read by read."""

    def __init__(self) -> None:
        self.shares = PageShares()
        self.pairs = PairLedger()
        self._blamed_ns: dict[int, int] = {}
        self._self_ns: dict[int, int] = {}
        self._waited = False

    def update(self, victims: NDArray[np.uint64], stall_ns: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Blame what was added since the last call; returns each victim's own part so far, shape (n,).

        While no taker of pages is known, blame waits for one more call.
        """
        grown = {
            victim: total - self._blamed_ns.get(victim, 0)
            for victim, total in zip(victims.tolist(), stall_ns.tolist(), strict=True)
            if total > self._blamed_ns.get(victim, 0)
        }
        self._waited = bool(grown) and self.shares.is_empty and not self._waited
        if not self._waited:
            self._share_out(grown)
        return np.array([self._self_ns.get(victim, 0) for victim in victims.tolist()], dtype=np.uint64)

    def _share_out(self, grown_ns: dict[int, int]) -> None:
        others: list[tuple[int, int, int]] = []
        for victim, amount in grown_ns.items():
            self._blamed_ns[victim] = self._blamed_ns.get(victim, 0) + amount
            parts = self.shares.split(amount)
            self._self_ns[victim] = self._self_ns.get(victim, 0) + parts.pop(victim, 0)
            others += [(victim, culprit, part) for culprit, part in parts.items()]
        rows = np.array(others, dtype=np.uint64).reshape(-1, 3)
        self.pairs.add(rows[:, 0], rows[:, 1], rows[:, 2])

    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Drop victims that are gone."""
        self.pairs.forget(ids)
        for gone in ids.tolist():
            self._blamed_ns.pop(gone, None)
            self._self_ns.pop(gone, None)


class StallsUnderWay:
    """Stall times that grow while a stall lasts: the sums of ended stalls and what those under way took so far."""

    def __init__(self) -> None:
        self._told: dict[int, NDArray[np.uint64]] = {}

    def add(
        self, ids: NDArray[np.uint64], values: NDArray[Any], stalls: NDArray[Any], now_ns: int
    ) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Return cgroups and records with the stalls under way, `STALL_RECORD`s, in their sums; never less than before.

        The sums must be read before the stalls: one that ends in between is missing in one read, not counted twice.
        """
        live = stalls[(stalls["cause"] < len(MEMORY_CAUSES)) & (stalls["since_ns"] < now_ns)]
        fresh = np.setdiff1d(live["cgroup"], ids)
        ids = np.concatenate([ids, fresh])
        values = np.concatenate([values, np.zeros(len(fresh), dtype=CGROUP_RECORD)])
        place_of = {identity: place for place, identity in enumerate(ids.tolist())} if len(live) or self._told else {}
        for stall in live:
            lasted_ns = min(now_ns - int(stall["since_ns"]), LONGEST_UNSEEN_NS)
            values["stall_ns"][place_of[int(stall["cgroup"])], int(stall["cause"])] += np.uint64(lasted_ns)
        for identity, told in list(self._told.items()):
            place = place_of.get(identity)
            if place is None:
                del self._told[identity]
            else:
                values["stall_ns"][place] = np.maximum(values["stall_ns"][place], told)
                self._told[identity] = values["stall_ns"][place].copy()
        for identity in set(live["cgroup"].tolist()):
            self._told[identity] = values["stall_ns"][place_of[identity]].copy()
        return ids, values


class Memory(BpfProbe):
    """Needs tp_btf and per-CPU arrays read in batches (kernel 5.13 and later; compaction is counted from 5.18 on)."""

    name: ClassVar[str] = "memory"
    records: ClassVar = {"memory_cgroup": CGROUP_RECORD, "stall": STALL_RECORD}

    def __init__(self, bpf: LoadedBpf) -> None:
        super().__init__(bpf)
        self._cgroups = bpf.map("cgroups", U64, CGROUP_RECORD)
        self._allocators = bpf.map("allocators", U64, U64)
        self._kswapd_wakes = bpf.map("kswapd_wakes", U32, U64)
        self._stalls = bpf.map("stalls", U32, STALL_RECORD)
        self._under_way = StallsUnderWay()
        self._lost = bpf.map("lost", U32, U64)
        self._blame = GlobalBlame()
        self.pairs: PairLedger = self._blame.pairs
        self.page_shares: PageShares = self._blame.shares
        self._pages: dict[int, int] = {}
        self._counting: int | None = None
        self._quiet_reads = 0
        self._signs_of_shortage = 0

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Memory":
        """Load the variant that fits this kernel's OOM tracepoint and attach; ends of stalls before their begins."""
        kernel.require_tracepoints(*TRACEPOINTS)
        try:
            return cls(cls.attached(kernel, limits, traced=True))
        except Unsupported as refusal:
            bpf = cls.attached(kernel, limits, traced=False)
            kernel.refusals[HELD_BACK] = f"{WHY_UNMEASURED} ({refusal})"
        return cls(bpf)

    @classmethod
    def attached(cls, kernel: Kernel, limits: ProbeLimits, *, traced: bool) -> BpfObject:
        """Return running programs: global reclaim by its function or by its tracepoints. Raises Unsupported."""
        if traced and not kernel.btf.has_function(RECLAIM_FUNCTION):
            raise Unsupported(f"the kernel's BTF has no function {RECLAIM_FUNCTION}")
        by_task = kernel.btf.tracepoint_arguments("mark_victim")[0] == "struct task_struct *"
        stalls = PROGRAMS if traced else (*PROGRAMS, *TRACEPOINTS_OF_GLOBAL)
        wanted = (
            *(VICTIM_BY_TASK if by_task else VICTIM_BY_ID),
            *KSWAPD_PROGRAMS,
            *(in_turn(*stalls) if kernel.preempts_tracepoints else stalls),
            *(TRACED if traced else ()),
        )
        bpf = open_object(cls.image(), kernel)
        bpf.without(*(set(bpf.program_names) - {*wanted, COUNT_PAGES}))
        bpf.resize("cgroups", limits.max_cgroups)
        share(bpf, limits.shards, allocators=limits.max_cgroups)
        load(bpf)
        attach(bpf, *wanted)
        return bpf

    def read(self) -> Reading:
        takers, pages = self._allocators.read(drain=True)
        self._take_pages(takers.copy(), pages.sum(axis=1))
        ids, values = self._cgroups.read()
        ids, values = ids.copy(), values.copy()
        _, stalls = self._stalls.read()
        ids, values = self._under_way.add(ids, values, stalls, time.monotonic_ns())
        dense: dict[str, NDArray[Any]] = {"memory.oom_kills": values["oom_kills"]}
        for row, cause in enumerate(MEMORY_CAUSES):
            dense[f"memory.stall_{cause}_ns"] = values["stall_ns"][:, row]
            dense[f"memory.stall_{cause}_count"] = values["stall_count"][:, row]
            dense[f"memory.stall_{cause}_hist"] = values[f"{cause}_hist"]
        dense["memory.stall_global_self_ns"] = self._blame.update(ids, values["stall_ns"][:, GLOBAL])
        wakes = self._kswapd_wakes.read()[1].sum(axis=1)
        self._count_pages_while_short(int(wakes[0]) + int(values["stall_count"][:, GLOBAL].sum()))
        _, lost = self._lost.read()
        return Reading(
            {
                CGROUP: self._with_pages(ids, dense),
                "memory.blame": self.pairs.table("memory.blame_ns"),
                HOST: Table({}, {"memory.kswapd_wakes": wakes}),
            },
            dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True)),
        )

    def reserve(self, ids: NDArray[np.uint64]) -> int:
        return self._cgroups.reserve(ids)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self._cgroups.delete(ids)
        self._blame.forget(ids)
        for gone in ids.tolist():
            self._pages.pop(gone, None)

    def _count_pages_while_short(self, signs: int) -> None:
        """Attach the page counter once background or global reclaim ran, detach it when it has not for long.

        A gone cgroup takes its stalls out of `signs`: any change counts as a sign.
        """
        self._quiet_reads = self._quiet_reads + 1 if signs == self._signs_of_shortage else 0
        self._signs_of_shortage = signs
        if self._counting is None and not self._quiet_reads:
            self._counting = self._bpf.attach(COUNT_PAGES)
        elif self._counting is not None and self._quiet_reads >= QUIET_READS:
            self._bpf.release(self._counting)
            self._counting = None

    def _take_pages(self, takers: NDArray[np.uint64], pages: NDArray[np.uint64]) -> None:
        self._blame.shares.add(takers, pages)
        for taker, amount in zip(takers.tolist(), pages.tolist(), strict=True):
            self._pages[taker] = self._pages.get(taker, 0) + amount

    def _with_pages(self, ids: NDArray[np.uint64], dense: dict[str, NDArray[Any]]) -> Table:
        """The dense table with a row also for cgroups that only took pages."""
        known = set(ids.tolist())
        extra = np.array([taker for taker in self._pages if taker not in known], dtype=np.uint64)
        every = np.concatenate([ids, extra])
        columns = {
            name: np.concatenate([column, np.zeros((len(extra), *column.shape[1:]), dtype=column.dtype)])
            for name, column in dense.items()
        }
        columns["memory.pressure_pages"] = np.array([self._pages.get(i, 0) for i in every.tolist()], dtype=np.uint64)
        return Table({"cgroup": every}, columns)
