"""Block IO of each cgroup and disk: time held back by a limit, queued, served; and the cgroups ahead of it.

Queue time runs from the bio's entry into the block layer to the request's issue to the driver, so it holds the wait for
a free tag and for a merge too; device time from there to completion. `excess` is the part of the device time by which
IOs that came to a busy disk take longer than those with the least ahead of them: averages of the same disk and class
(direction, size, sequential, flushed through, flush), and only differences that the spread of those times does not
explain (probes/c/usual_times.h). A disk that was busy at all times since the start has no excess, but its queue may:
where no IO came with nothing ahead, those that wait for the driver longer than a millisecond wait behind others, since
a scheduler hands on at once what nothing is ahead of. An IO is blamed for what it waits, queue and excess, by what was
outstanding on the disk when it came and when it ended; the part with own IOs ahead, or none, is `self`:
`queue + excess == self + blame`. A disk that was idle and ends the first IO that comes then much later than usual has
stalled by itself: IOs that came meanwhile found others ahead for that reason alone, and are not compared.

What an IO takes beyond its first second counts while it grows, as excess (`probes.io_under_way`). `stalled` is the part
of that in which the disk ended no IO of anybody's.

The cgroup is that of the thread that submits. Kernel threads (writeback, dispatchers of limits, loop devices) submit
for the cgroup on the bio, which on cgroup v1 is of another hierarchy: there the last cgroup seen to submit from it is
taken, and IO of the root (all writeback on v1) is `KERNEL_ID`'s. Disks are those with requests: of a stack (LVM on
NVMe) the lowest counts, but a loop device and the disk under it both do. Device keys are `major << 20 | minor` of the
whole disk. Times are sums over IOs, not over threads: sixteen IOs in flight wait sixteen seconds a second.

A write to swap is that of the thread that reclaims under its limit, and where the whole node is short of those who take
pages (`probes.swap_out`), not of the cgroup that loses the page. A worker that passes such a write on (dm-delay's) does
so for who wrote last for that one; one that makes writes of its own (dm-crypt, zswap's, a loop device's) writes for the
cgroup on the bio, as elsewhere. What a victim waits behind its own part of such writes is in the sum over its disks
alone. With BCC this holds for kswapd only.

No tracepoint fires before a limit holds a bio back, so throttle time needs fexit; where the host refuses that, its
column is absent and `Kernel.refusals` says why.

Cost of an IO, by the kernel's BPF statistics under 43,000 random 4 KiB reads a second on a loop device, sixteen deep
(`fio --rw=randread --bs=4k --direct=1 --ioengine=io_uring --iodepth=16`): 350 ns at the queue, 120 ns at issue, 370 ns
at completion; an empty program costs 58 ns there. From kernel 7.0 on each has a second one (`probes.probe.AGAIN`) that
costs another 125, 70 and 90 ns. Under eight threads and a real-time task that wakes 250 times a second, on two emulated
CPUs of 7.2, the first ones alone missed 1.0 to 1.5 % of the IOs, and both together 0.02 %.
"""

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, HOST, Reading, Table
from api.histogram import SLOTS
from api.plugin import Unsupported
from probes.bpf_object import BpfObject, LoadedBpf
from probes.io_under_way import Row, UnderWay
from probes.page_shares import PageShares
from probes.pairs import PairLedger
from probes.probe import BpfProbe, Kernel, ProbeLimits, again, attach, in_turn, load, open_object
from probes.swap_out import SWAP_OUT_ID, Pairs, SwapOut

SEATS = 16
U64, U32 = np.dtype(np.uint64), np.dtype(np.uint32)
U16, U8 = np.dtype(np.uint16), np.dtype(np.uint8)

KEY_RECORD = np.dtype([("cgroup", U64), ("disk", U64)])
SUMS = ("queue_ns", "device_ns", "throttle_ns", "excess_ns", "self_ns", "ios", "read_bytes", "write_bytes")
HISTOGRAMS = ("queue_hist", "device_hist")
STATS_RECORD = np.dtype([*((name, U64) for name in SUMS), *((name, U64, (SLOTS,)) for name in HISTOGRAMS)])
PAIR_RECORD = np.dtype([("victim", U64), ("culprit", U64)])
IO_RECORD = np.dtype(
    [
        ("held_ns", U64),
        ("queued_ns", U64),
        ("issued_ns", U64),
        ("cgroup", U64),
        ("disk", U32),
        ("seat", U32),
        ("depth", U16),
        ("synced", U8),
        ("sequential", U8),
        ("ahead", U16, (SEATS + 1,)),
        ("again", U16),
    ]
)
DISK_RECORD = np.dtype(
    [
        ("outstanding", np.dtype(np.int32), (SEATS + 1,)),
        ("moved_s", U32, (SEATS + 1,)),
        ("units", U32, (SEATS,)),
        ("cgroups", U64, (SEATS,)),
        ("owner_ns", U64, (SEATS,)),
        ("next_sector", U64, (2 * SEATS,)),
        ("ended_ns", U64),
        ("since_ns", U64),
        ("busy_ns", U64),
        ("stalled_from_ns", U64),
        ("stalled_until_ns", U64),
        ("busy_class", U32),
        ("padding", U32),
    ]
)
CLASS_RECORD = np.dtype([("disk", U32), ("class", U32)])
TIMES_RECORD = np.dtype([("usual", U64, (2,)), ("recent", U64, (2,)), ("counts", U32, (4,))])
USUAL_RECORD = np.dtype([("depths", TIMES_RECORD, (7,))])
PRUNE_EVERY_READS = 60
"""Between looks for disks that are gone."""
LOST_PLACES = ("blockio.io", "blockio.cgroup", "blockio.disk", "blockio.blame_ns", "blockio.usual")

TRACEPOINTS = {
    "block_bio_complete": "on_bio_complete",
    "block_rq_complete": "on_complete",
    "block_rq_requeue": "on_requeue",
    "block_rq_issue": "on_issue",
    "block_split": "on_split",
    "block_bio_queue": "on_bio_queue",
}
"""In the order of attachment: the end of an IO before its beginning."""
HOLD_FUNCTION, HOLD_PROGRAM = "__blk_throtl_bio", "on_hold"


class BlockIo(BpfProbe):
    """Needs tp_btf and the block tracepoints as they are since 5.11; throttle time needs fexit."""

    name: ClassVar[str] = "blockio"
    records: ClassVar = {
        "blockio_key": KEY_RECORD,
        "blockio_stats": STATS_RECORD,
        "blockio_pair": PAIR_RECORD,
        "io": IO_RECORD,
        "disk": DISK_RECORD,
        "class_key": CLASS_RECORD,
        "usual_times": USUAL_RECORD,
    }

    def __init__(self, bpf: LoadedBpf, *, throttle: bool) -> None:
        super().__init__(bpf)
        self._cgroups = bpf.map("cgroups", KEY_RECORD, STATS_RECORD)
        self._blame = bpf.map("blame", PAIR_RECORD, U64)
        self._ios = bpf.map("ios", U64, IO_RECORD)
        self._disks = bpf.map("disks", U32, DISK_RECORD)
        self._usual = bpf.map("usual", CLASS_RECORD, USUAL_RECORD)
        self._under_way = UnderWay()
        self._swap_out = SwapOut()
        self._reads = 0
        self._gone = (0, 0)
        """Requests and bytes of cgroups that are forgotten."""
        self._lost = bpf.map("lost", U32, U64)
        self.pairs: PairLedger = PairLedger()
        self._sums = SUMS if throttle else tuple(name for name in SUMS if name != "throttle_ns")

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "BlockIo":
        """Load and attach; goes on without throttle time where the kernel's function cannot be traced."""
        kernel.require_tracepoints(*TRACEPOINTS)
        try:
            bpf = cls._load(kernel, limits, throttle=True)
            throttle = True
        except Unsupported as refusal:
            kernel.refusals["blockio.throttle_ns"] = f"fexit on {HOLD_FUNCTION} is refused ({refusal})"
            bpf = cls._load(kernel, limits, throttle=False)
            throttle = False
        programs = tuple(TRACEPOINTS.values())
        attach(bpf, *(in_turn(*programs) if kernel.preempts_tracepoints else programs))
        return cls(bpf, throttle=throttle)

    @classmethod
    def _load(cls, kernel: Kernel, limits: ProbeLimits, *, throttle: bool) -> BpfObject:
        if throttle and not kernel.btf.has_function(HOLD_FUNCTION):
            raise Unsupported(f"the kernel's BTF has no function {HOLD_FUNCTION}")
        bpf = open_object(cls.image(), kernel)
        if not throttle:
            bpf.without(HOLD_PROGRAM)
        if not kernel.preempts_tracepoints:
            bpf.without(*again(*TRACEPOINTS.values()))
        bpf.resize("cgroups", 2 * limits.max_cgroups)
        bpf.resize("blame", limits.max_pairs)
        load(bpf)
        if throttle:
            attach(bpf, HOLD_PROGRAM)
        return bpf

    def read(self) -> Reading:
        keys, stats = self._cgroups.read()
        keys, stats = keys.copy(), stats.copy()
        host_ios, host_bytes = (gone + now for gone, now in zip(self._gone, moved(stats), strict=True))
        io_keys, ios = self._ios.read()
        now_ns = time.monotonic_ns()
        numbers, disks = self._disks.read()
        self._reads += 1
        if self._reads % PRUNE_EVERY_READS == 0:
            self._prune(numbers)
        served = np.isin(numbers, keys["disk"])
        states = dict(zip(numbers[served].tolist(), disks[served], strict=True))
        unseen = self._under_way.unseen_ends(now_ns, ios, states)
        self._disks.delete(np.array(unseen.disks, dtype=U32))  # their counts begin anew with the next IO
        self._drop(io_keys[unseen.dead], ios["queued_ns"][unseen.dead])
        ios = ios[~unseen.rows]
        blamed_late = np.array(self._under_way.update(now_ns, ios, states), dtype=np.uint64).reshape(-1, 3)
        keys, stats, stalled_ns = with_under_way(keys, stats, self._under_way.rows)
        is_swap = keys["cgroup"] == np.uint64(SWAP_OUT_ID)
        written = int(stats["write_bytes"][is_swap].sum())
        if is_swap.any():
            keys, stats, stalled_ns = keys[~is_swap], stats[~is_swap], stalled_ns[~is_swap]
        ended, blamed = self._blame.read(drain=True)
        pairs = Pairs(ended["victim"], ended["culprit"], blamed).with_more(Pairs(*blamed_late.T))
        self.pairs.add(*self._swap_out.named(pairs, written))
        dense = by_cgroup(keys["cgroup"], stats, stalled_ns, self._sums)
        _, lost = self._lost.read()
        return Reading(
            {
                CGROUP: with_swap_out(dense, self._swap_out),
                "blockio.device": by_device(keys, stats, ios, self._sums),
                "blockio.blame": self.pairs.table("blockio.blame_ns"),
                HOST: Table(
                    {},
                    {
                        "blockio.host_ios": np.array([host_ios], dtype=np.uint64),
                        "blockio.host_bytes": np.array([host_bytes], dtype=np.uint64),
                    },
                ),
            },
            dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True)),
        )

    def _drop(self, keys: NDArray[np.uint64], queued_ns: NDArray[np.uint64]) -> None:
        """Drop records of IOs, but not where the bio is in use again."""
        for key, known_ns in zip(keys.tolist(), queued_ns.tolist(), strict=True):
            held = self._ios.lookup(key)
            if held is not None and int(held["queued_ns"][0]) == known_ns:
                self._ios.delete(np.array([key], dtype=np.uint64))

    def _prune(self, numbers: NDArray[Any]) -> None:
        """Drop what is kept of disks that are gone: loop and mapped devices come and go under new numbers."""
        gone = numbers[self._under_way.gone(numbers)].copy()
        if len(gone):
            classes, _ = self._usual.read()
            self._usual.delete(classes[np.isin(classes["disk"], gone)].copy())
            self._disks.delete(gone)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        keys, stats = self._cgroups.read()
        gone = np.isin(keys["cgroup"], ids)
        ios, moved_bytes = moved(stats[gone])
        self._gone = (self._gone[0] + ios, self._gone[1] + moved_bytes)
        self._cgroups.delete(keys[gone])
        self.pairs.forget(ids)
        self._under_way.forget(ids)
        self._swap_out.forget(ids)

    def follow_pages(self, shares: PageShares) -> None:
        self._swap_out.takers = shares


def moved(stats: NDArray[Any]) -> tuple[int, int]:
    """Requests and bytes of all records together."""
    return int(stats["ios"].sum()), int(stats["read_bytes"].sum()) + int(stats["write_bytes"].sum())


def with_under_way(
    keys: NDArray[Any], stats: NDArray[Any], rows: Mapping[tuple[int, int], Row]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint64]]:
    """Add the times of long IOs to the records of their cgroup and disk, with new ones for those that have none.

    Returns keys, records and the stalled nanoseconds of each.
    """
    if not rows:
        return keys, stats, np.zeros(len(keys), dtype=np.uint64)
    places = {key: place for place, key in enumerate(keys.tolist())}
    fresh = [key for key in rows if key not in places]
    places |= {key: len(keys) + number for number, key in enumerate(fresh)}
    keys = np.concatenate([keys, np.array(fresh, dtype=KEY_RECORD)])
    stats = np.concatenate([stats, np.zeros(len(fresh), dtype=STATS_RECORD)])
    stalled_ns = np.zeros(len(keys), dtype=np.uint64)
    for key, row in rows.items():
        place = places[key]
        stats["excess_ns"][place] += np.uint64(row.excess_ns)
        stats["device_ns"][place] += np.uint64(row.excess_ns)
        stats["self_ns"][place] += np.uint64(row.self_ns)
        stalled_ns[place] = row.stalled_ns
    return keys, stats, stalled_ns


def by_cgroup(
    cgroups: NDArray[np.uint64], stats: NDArray[Any], stalled_ns: NDArray[np.uint64], sums: tuple[str, ...]
) -> Table:
    """The dense table: each cgroup's sums over its disks, in one pass over the records as plain words."""
    order = np.argsort(cgroups, kind="stable")
    ids, starts = np.unique(cgroups[order], return_index=True)
    words = stats.view(np.uint64).reshape(len(stats), STATS_RECORD.itemsize // 8)[order]
    totals = (np.add.reduceat(words, starts, axis=0) if len(ids) else words).view(STATS_RECORD)[:, 0]
    stalled = np.add.reduceat(stalled_ns[order], starts) if len(ids) else stalled_ns
    columns: dict[str, NDArray[Any]] = {f"blockio.{name}": totals[name] for name in (*sums, *HISTOGRAMS)}
    return Table({"cgroup": ids}, {**columns, "blockio.stalled_ns": stalled})


def with_swap_out(table: Table, swap_out: SwapOut) -> Table:
    """The dense table with what was written to swap, and a row also for cgroups that have but that."""
    if swap_out.takers is None:
        return table
    ids, columns = table.ids, dict[str, NDArray[Any]](table.columns)
    written = {cgroup: amount for cgroup, amount in swap_out.written_bytes.items() if cgroup >> 56 == 0}
    fresh = np.setdiff1d(np.fromiter(written.keys(), np.uint64, len(written)), ids)
    if len(fresh):
        ids = np.concatenate([ids, fresh])
        for name, column in columns.items():
            columns[name] = np.concatenate([column, np.zeros((len(fresh), *column.shape[1:]), dtype=column.dtype)])
    columns["blockio.swapped_bytes"] = _amounts(ids, written)
    if swap_out.own_ns:
        columns["blockio.self_ns"] = columns["blockio.self_ns"] + _amounts(ids, swap_out.own_ns)
    return Table({"cgroup": ids}, columns)


def _amounts(ids: NDArray[np.uint64], by_id: Mapping[int, int]) -> NDArray[np.uint64]:
    if not by_id:
        return np.zeros(len(ids), dtype=np.uint64)
    return np.array([by_id.get(each, 0) for each in ids.tolist()], dtype=np.uint64)


def by_device(keys: NDArray[Any], stats: NDArray[Any], ios: NDArray[Any], sums: tuple[str, ...]) -> Table:
    """A row for each cgroup and disk; `inflight` counts the IOs that are queued or served at this moment."""
    present = ios[ios["queued_ns"] != 0]
    live = np.empty(len(present), dtype=KEY_RECORD)
    live["cgroup"], live["disk"] = present["cgroup"], present["disk"]
    inflight = np.zeros(len(keys), dtype=np.uint64)
    order = np.argsort(keys)
    if len(keys) and len(live):
        at = np.minimum(np.searchsorted(keys[order], live), len(keys) - 1)
        known = keys[order][at] == live
        np.add.at(inflight, order[at[known]], 1)
    columns: dict[str, NDArray[Any]] = {f"blockio.{name}": stats[name] for name in (*sums, *HISTOGRAMS)}
    columns["blockio.inflight"] = inflight
    return Table({"cgroup": keys["cgroup"], "device": keys["disk"].astype(np.uint32)}, columns)
