"""Seconds a cgroup ran while another cgroup ran on the other hardware thread of the core.

Column of the dense table: `cpu.smt_foreign_ns`. Table `smt.blame` holds it by culprit; its rows sum to the column.
Threads of a core share its execution units and inner caches, so this is exposure, not loss: how much each nanosecond
costs depends on what the two do. Idle and kernel threads do not count as another cgroup.

On a 2-CPU AMD EPYC guest whose CPUs were declared siblings, a switch between cgroups costs about 120 ns while the
sibling idles and 165 ns while it works, one inside a cgroup 70 ns; 58 ns of each is an empty program's
(`python -m bench.probe_cost smt`). Any cgroup may run on the sibling thread, so a focus saves nothing unless it is
empty: the program is then detached and nothing is reported.

Option `[probes.options.smt] siblings = "0-1,2-3"` declares pairs in place of the kernel's topology, for guests that
do not know which of their CPUs share a core.
"""

import errno
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from api.cpuset import parse_cpuset
from api.frame import CGROUP, Reading, Table
from api.plugin import Unsupported
from api.settings import SettingsError
from probes.bpf_object import BpfObject
from probes.libbpf import BpfError, possible_cpus
from probes.pairs import PairLedger
from probes.probe import BpfProbe, Kernel, ProbeLimits, attach, load, open_object
from probes.shared_maps import share

TOPOLOGY = Path("/sys/devices/system/cpu")
NO_CORE = 0xFFFF_FFFF
MAX_CORES = 1024

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)
SEAT_RECORD = np.dtype([("core", U32), ("thread", U32)])
CORE_RECORD = np.dtype(
    [("settled_ns", U64), ("identities", U64, (2,)), ("since_ns", U64, (2,)), ("padding", U64, (3,))]
)
PAIR_RECORD = np.dtype([("low", U64), ("high", U64)])
LOST_PLACES = ("smt.pair_ns", "smt.unseen_ns")

Core = tuple[int, int]
"""CPU numbers of the two threads of one core."""


class Smt(BpfProbe):
    """Needs tp_btf, and cores with two hardware threads."""

    name: ClassVar[str] = "smt"
    focusable: ClassVar[bool] = True
    options: ClassVar = {"siblings": ""}
    records: ClassVar = {"smt_seat": SEAT_RECORD, "smt_core": CORE_RECORD, "smt_pair": PAIR_RECORD}

    def __init__(self, bpf: BpfObject, cores: Sequence[Core]) -> None:
        super().__init__(bpf)
        self._object = bpf
        self.cores = tuple(cores)
        """The cores that are watched."""
        self._link = -1
        self._states = bpf.map("cores", U32, CORE_RECORD)
        self._met = bpf.map("pairs", PAIR_RECORD, U64)
        self._lost = bpf.map("lost", U32, U64)
        self.pairs: PairLedger = PairLedger()

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Smt":
        """Watch the cores of this host, or those that the option declares."""
        declared = limits.option("smt", "siblings", "")
        return cls.open_cores(kernel, limits, parse_pairs(declared) if declared else read_cores(TOPOLOGY))

    @classmethod
    def open_cores(cls, kernel: Kernel, limits: ProbeLimits, cores: Iterable[Core]) -> "Smt":
        """Watch the given cores."""
        kernel.require_tracepoints("sched_switch")
        watched = sorted(cores)
        bpf = open_object(cls.image(), kernel)
        bpf.resize("seats", possible_cpus())
        bpf.resize("cores", len(watched))
        share(bpf, limits.shards, pairs=limits.max_pairs)
        bpf.set_rodata({"cores_known": len(watched)})
        load(bpf)
        _seat(bpf, watched)
        (link,) = attach(bpf, "on_switch")
        probe = cls(bpf, watched)
        probe._sit_down(link)
        return probe

    def read(self) -> Reading:
        _, lost = self._lost.read()
        losses = dict(zip(LOST_PLACES, lost.sum(axis=1).tolist(), strict=True))
        if self._link < 0:
            return Reading(lost=losses)
        self._drain()
        blame = self.pairs.table("smt.blame_ns")
        ids, foreign_ns = sum_by_victim(blame)
        dense = Table({"cgroup": ids}, {"cpu.smt_foreign_ns": foreign_ns})
        return Reading({CGROUP: dense, "smt.blame": blame}, losses)

    def _drain(self) -> None:
        self._object.run("settle_cores")
        keys, met = self._met.read(drain=True)
        met_ns = met.sum(axis=1)
        self.pairs.add(keys["low"], keys["high"], met_ns)
        self.pairs.add(keys["high"], keys["low"], met_ns)

    def focus(self, ids: NDArray[np.uint64] | None) -> None:
        """Detach the program when the focus is empty; else all cgroups are watched."""
        wanted = ids is None or len(ids) > 0
        if wanted and self._link < 0:
            for core in range(len(self.cores)):
                self._states.update(core, np.zeros((), dtype=CORE_RECORD))
            self._sit_down(self._object.attach("on_switch"))
        elif not wanted and self._link >= 0:
            self._drain()
            self._object.release(self._link)
            self._link = -1

    def _sit_down(self, link: int) -> None:
        """Record the cgroup that runs on each CPU before the first switch."""
        self._link = link
        for cpu in sorted(cpu for core in self.cores for cpu in core):
            _sit_down(self._object, cpu)

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self.pairs.forget(ids)


def _seat(bpf: BpfObject, cores: list[Core]) -> None:
    """Write the core and thread of each CPU into the program's map."""
    seats = bpf.map("seats", U32, SEAT_RECORD)
    for cpu in range(possible_cpus()):
        seats.update(cpu, np.array((NO_CORE, 0), dtype=SEAT_RECORD))
    for index, core in enumerate(cores):
        for thread, cpu in enumerate(core):
            seats.update(cpu, np.array((index, thread), dtype=SEAT_RECORD))


def _sit_down(bpf: BpfObject, cpu: int) -> None:
    try:
        bpf.run("sit_down", cpu)
    except BpfError as error:
        if error.errno != errno.ENXIO:  # offline: nothing runs there
            bpf.close()
            raise


def sum_by_victim(blame: Table) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Each victim once, and its nanoseconds over all culprits."""
    ids, inverse = np.unique(blame.ids, return_inverse=True)
    total = np.zeros(len(ids), dtype=np.uint64)
    np.add.at(total, inverse, blame.columns["smt.blame_ns"])
    return ids, total


def read_cores(topology: Path) -> frozenset[Core]:
    """The cores of the host; raises Unsupported where none has two threads or one has more."""
    cores: set[Core] = set()
    for path in topology.glob("cpu[0-9]*/topology/thread_siblings_list"):
        threads = sorted(parse_cpuset(path.read_text()))
        if len(threads) > 2:
            raise Unsupported(f"{path}: {len(threads)} hardware threads share a core; two are understood")
        if len(threads) == 2:
            cores.add((threads[0], threads[1]))
    if not cores:
        raise Unsupported(
            "no core has two hardware threads (SMT is off, or the hypervisor hides it)",
            "if CPUs of this guest share cores, name the pairs in [probes.options.smt] siblings",
        )
    if len(cores) > MAX_CORES:
        raise Unsupported(f"{len(cores)} cores; up to {MAX_CORES} are understood")
    return frozenset(cores)


def parse_pairs(text: str) -> frozenset[Core]:
    """Pairs such as `0-1,2-3`; raises SettingsError for anything else, or a CPU in two pairs."""
    cores: set[Core] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)-(\d+)\s*", part)
        if not match:
            raise _bad_pairs(text, f"{part!r} is not a pair such as 0-1")
        cores.add((int(match[1]), int(match[2])))
    cpus = [cpu for core in cores for cpu in core]
    if len(set(cpus)) != len(cpus):
        raise _bad_pairs(text, "a CPU is in two pairs")
    if max(cpus) >= possible_cpus():
        raise _bad_pairs(text, f"this host has no CPU {max(cpus)}")
    return frozenset(cores)


def _bad_pairs(text: str, problem: str) -> SettingsError:
    return SettingsError("settings", "[probes.options.smt] siblings", f"{text!r}: {problem}")
