"""Memory stalls from the running kernel, held against the kernel's own tracepoint counts and OOM counts."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.frame import CGROUP, HOST, Reading
from api.metrics import MEMORY_CAUSES
from probes.memory import COUNT_PAGES, HELD_BACK, RECLAIM_FUNCTION, Memory
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.tracepoints import TracepointCounter, recorded
from tests.waiting import wait_for

pytestmark = pytest.mark.kernel

MIB = 1 << 20
LIMIT_BYTES = 32 * MIB
SMALL_NODE_KIB = 3 << 20
SMALL_RESERVE_KIB, LARGE_RESERVE_KIB = 8 << 10, 128 << 10
"""Least free memory that a small node is told to keep."""
ENOUGH_NS = 100_000_000
RECLAIM = ("vmscan/mm_vmscan_direct_reclaim_begin", "vmscan/mm_vmscan_direct_reclaim_end")

# Waits for a line, then reads a file through the page cache, over and over.
READER = """
import sys
path, rounds = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
for _ in range(rounds):
    with open(path, "rb", buffering=0) as stream:
        while stream.read(1 << 20):
            pass
print("done", flush=True)
sys.stdin.readline()
"""
# Forks children that each take more than the limit; prints how many were killed.
GREEDY = """
import os, signal, sys
killed = 0
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        taken = bytearray(int(sys.argv[2]))
        for offset in range(0, len(taken), 4096):
            taken[offset] = 1
        os._exit(0)
    killed += os.waitpid(child, 0)[1] == signal.SIGKILL
print(killed, flush=True)
"""
SPINNER = "while True: pass"
# Writes a word to a file for each line of input.
WRITER = """
import sys
sys.stdin.readline()
try:
    with open(sys.argv[1], "w") as stream:
        stream.write(sys.argv[2])
except OSError:
    pass
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def probe(module_kernel: Kernel) -> Iterator[Memory]:
    probe = Memory.open(module_kernel, ProbeLimits())
    yield probe
    probe.close()


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    """A hole: reading it fills the page cache of the reader, and nothing is cached before."""
    path = tmp_path / "big"
    with path.open("wb") as stream:
        stream.truncate(3 * LIMIT_BYTES)
    return path


def start(cgroup: TestCgroup, program: str, *arguments: str, cpus: str | None = None) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-S", "-c", program, *arguments]
    return cgroup.spawn(argv, cpus, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def begin(process: subprocess.Popen[bytes]) -> None:
    """Let a waiting child work."""
    assert process.stdin
    process.stdin.write(b"go\n")
    process.stdin.flush()


def go(process: subprocess.Popen[bytes]) -> bytes:
    """Let a waiting child work; returns the line it prints when it is done."""
    assert process.stdout
    begin(process)
    return process.stdout.readline().strip()


def stalls(reading: Reading, cgroup: TestCgroup, what: str) -> dict[str, Any]:
    """`memory.stall_<cause>_<what>` of one cgroup, by cause; zeros where it has no row."""
    table = reading.tables[CGROUP]
    rows = np.flatnonzero(table.ids == cgroup.cgroup_id)
    columns = {cause: table.columns[f"memory.stall_{cause}_{what}"] for cause in MEMORY_CAUSES}
    return {cause: column[rows[0]].tolist() if len(rows) else 0 for cause, column in columns.items()}


def read_file_under_limit(cgroup: TestCgroup, path: Path) -> tuple[int, int]:
    """Read a file three times the limit; returns the kernel's count of limit reclaims, and the time taken."""
    child = start(cgroup, READER, str(path), "2")
    counter = TracepointCounter.of("vmscan/mm_vmscan_memcg_reclaim_begin", child.pid)
    since = time.monotonic_ns()
    assert go(child) == b"done"
    taken_ns = time.monotonic_ns() - since
    reclaims = counter.read()
    counter.close()
    return reclaims, taken_ns


def test_own_limit_stalls_are_counted_exactly(probe: Memory, tree: CgroupTree, big_file: Path) -> None:
    lost = probe.read().lost
    with tree.make_cgroup("limited") as cgroup:
        cgroup.set_memory_limit(LIMIT_BYTES)
        reclaims, taken_ns = read_file_under_limit(cgroup, big_file)
        reading = probe.read()
        assert reclaims > 0
        assert stalls(reading, cgroup, "count") == {"own_limit": reclaims} | dict.fromkeys(MEMORY_CAUSES[1:], 0)
        assert 0 < stalls(reading, cgroup, "ns")["own_limit"] < taken_ns
        assert sum(stalls(reading, cgroup, "hist")["own_limit"]) == reclaims
        assert reading.lost == lost


def test_ancestors_limit_is_not_ones_own(probe: Memory, tree: CgroupTree, big_file: Path) -> None:
    with tree.make_cgroup("outer") as outer, outer.make_cgroup("inner") as inner:
        outer.set_memory_limit(LIMIT_BYTES)
        reclaims, _ = read_file_under_limit(inner, big_file)
        reading = probe.read()
        assert reclaims > 0
        counts = stalls(reading, inner, "count")
        assert (counts["own_limit"], counts["ancestor_limit"]) == (0, reclaims)
        assert stalls(reading, outer, "count")["own_limit"] == 0


def test_reclaim_on_request_is_no_stall(probe: Memory, tree: CgroupTree, big_file: Path) -> None:
    with tree.make_cgroup("cache") as cache, tree.make_cgroup("asker") as asker:
        reader = start(cache, READER, str(big_file), "1")
        assert go(reader) == b"done"
        v1 = tree.version == "v1"
        request = cache.memory_dir / ("memory.force_empty" if v1 else "memory.reclaim")
        writer = start(asker, WRITER, str(request), "0" if v1 else str(LIMIT_BYTES))
        counter = TracepointCounter.of("vmscan/mm_vmscan_memcg_reclaim_begin", writer.pid)
        if v1:
            reader.kill()
            reader.wait()
        assert go(writer) == b"done"
        reclaims = counter.read()
        counter.close()
        assert reclaims > 0
        assert not any(stalls(probe.read(), asker, "count").values())


def test_compaction_by_an_administrator_is_no_stall(probe: Memory, tree: CgroupTree) -> None:
    with tree.make_cgroup("compactor") as cgroup:
        writer = start(cgroup, WRITER, "/proc/sys/vm/compact_memory", "1")
        counter = TracepointCounter.of("compaction/mm_compaction_begin", writer.pid)
        assert go(writer) == b"done"
        passes = counter.read()
        counter.close()
        assert passes > 0
        assert not any(stalls(probe.read(), cgroup, "count").values())


def test_oom_kills_belong_to_the_victims_cgroup(probe: Memory, tree: CgroupTree) -> None:
    with tree.make_cgroup("greedy") as cgroup:
        cgroup.set_memory_limit(LIMIT_BYTES)
        parent = start(cgroup, GREEDY, "5", str(2 * LIMIT_BYTES))
        assert parent.stdout
        assert parent.stdout.readline().strip() == b"5"
        table = probe.read().tables[CGROUP]
        assert table.columns["memory.oom_kills"][table.ids == cgroup.cgroup_id].tolist() == [5]


def test_forgotten_cgroup_is_gone(probe: Memory, tree: CgroupTree, big_file: Path) -> None:
    with tree.make_cgroup("gone") as cgroup:
        cgroup.set_memory_limit(LIMIT_BYTES)
        read_file_under_limit(cgroup, big_file)
        identity = np.array([cgroup.cgroup_id], dtype=np.uint64)
        assert identity[0] in probe.read().tables[CGROUP].ids
        probe.forget(identity)
        assert identity[0] not in probe.read().tables[CGROUP].ids


def missed_stalls(probe: Memory) -> int:
    """Begins and ends that no program saw: each may hide one stall."""
    return sum(count for program, count in probe.missed().items() if program != COUNT_PAGES)


def memory_total_kib() -> int:
    return int(Path("/proc/meminfo").read_text().split()[1])


def memory_free_kib() -> int:
    return int(Path("/proc/meminfo").read_text().split()[4])


@pytest.fixture
def hole(tmp_path: Path) -> Path:
    """A file as large as memory, on a node small enough to be pressed without harm to others: a virtual machine."""
    if memory_total_kib() > SMALL_NODE_KIB:
        pytest.skip("this node has too much memory to press it all: run in a small virtual machine")
    path = tmp_path / "hole"
    with path.open("wb") as stream:
        stream.truncate(memory_total_kib() << 10)
    return path


def test_global_reclaim_is_the_neighbours(probe: Memory, tree: CgroupTree, hole: Path) -> None:
    with tree.make_cgroup("hog") as hog, tree.make_cgroup("victim") as victim:
        was, missed_before = probe.read(), missed_stalls(probe)
        reader = start(victim, READER, str(hole), "1000")
        counter = TracepointCounter.of("vmscan/mm_vmscan_direct_reclaim_begin", reader.pid)
        begin(reader)
        flood = start(hog, GREEDY, "1", str(2048 * memory_total_kib()))
        while flood.poll() is None:
            probe.read()
            time.sleep(0.2)
        reader.kill()
        reader.wait()
        reclaims = counter.read()
        counter.close()
        probe.read()
        reading = probe.read()
        assert reclaims > 0
        counts = stalls(reading, victim, "count")
        missed = missed_stalls(probe) - missed_before
        # A task that is killed while it is held back before reclaim has stalled without any.
        assert reclaims - missed <= counts["global"] <= reclaims + 1
        assert (counts["own_limit"], counts["ancestor_limit"]) == (0, 0)
        table, blame = reading.tables[CGROUP], reading.tables["memory.blame"]
        mine, named = table.ids == victim.cgroup_id, blame.ids == victim.cgroup_id
        own = int(table.columns["memory.stall_global_self_ns"][mine].sum())
        others = int(blame.columns["memory.blame_ns"][named].sum())
        assert own + others == int(table.columns["memory.stall_global_ns"][mine].sum())
        assert blame.columns["memory.blame_ns"][named & (blame.keys["culprit"] == hog.cgroup_id)].sum() > 0
        wakes = [int(r.tables[HOST].columns["memory.kswapd_wakes"][0]) for r in (was, reading)]
        assert wakes[1] > wakes[0]


@pytest.fixture
def least_free_memory() -> Iterator[Path]:
    """The kernel's setting of the least free memory in KiB, which is put back at the end."""
    file = Path("/proc/sys/vm/min_free_kbytes")
    before = file.read_text()
    yield file
    file.write_text(before)


@pytest.fixture
def slow_kswapd(hole: Path) -> Iterator[None]:
    """Let any other thread run before kswapd, where there is a `hole`: on a node that is there for the test."""
    names = Path("/proc").glob("[0-9]*/comm")
    (pid,) = (int(name.parent.name) for name in names if name.read_text() == "kswapd0\n")
    before = os.getpriority(os.PRIO_PROCESS, pid)
    os.setpriority(os.PRIO_PROCESS, pid, 19)
    yield
    os.setpriority(os.PRIO_PROCESS, pid, before)


@pytest.mark.usefixtures("slow_kswapd")
def test_a_wait_for_background_reclaim_is_part_of_a_global_stall(
    probe: Memory, module_kernel: Kernel, tree: CgroupTree, hole: Path, least_free_memory: Path
) -> None:
    """Where half of the least free memory or less is left, the kernel holds a task back until kswapd has made progress.

    Page cache fills memory down to a small reserve, and then a larger one is asked for while other work keeps kswapd
    from the CPUs. Page cache can give back more than that: a kernel that finds nothing to reclaim kills, or panics.
    The truth is of the kernel's own tracer.
    """
    if HELD_BACK in module_kernel.refusals:
        pytest.skip(module_kernel.refusals[HELD_BACK])
    with (
        closing(Memory(Memory.attached(module_kernel, ProbeLimits(), traced=False))) as by_tracepoint,
        tree.make_cgroup("held") as cgroup,
        tree.make_cgroup("busy") as busy,
    ):
        reader = start(cgroup, READER, str(hole), "1000")
        spinners = [start(busy, SPINNER, cpus=str(cpu)) for cpu in os.sched_getaffinity(0)]
        with recorded(reader.pid, RECLAIM_FUNCTION, *RECLAIM) as passed:
            begin(reader)
            for _ in range(20):
                signal_all(spinners, signal.SIGSTOP)
                least_free_memory.write_text(str(SMALL_RESERVE_KIB))
                wait_for(lambda: memory_free_kib() < LARGE_RESERVE_KIB // 4, 240)
                signal_all(spinners, signal.SIGCONT)
                least_free_memory.write_text(str(LARGE_RESERVE_KIB))
                wait_for(lambda: memory_free_kib() > LARGE_RESERVE_KIB // 2)
                if Spent.of(passed()).held_back_ns > ENOUGH_NS:
                    break
            reader.kill()
            reader.wait()
            spent = Spent.of(passed())
        counted_ns, by_tracepoint_ns = (stalls(each.read(), cgroup, "ns")["global"] for each in (probe, by_tracepoint))
        assert spent.held_back_ns > ENOUGH_NS
        assert spent.reclaim_ns + 0.8 * spent.held_back_ns <= counted_ns <= 1.01 * spent.whole_ns
        assert by_tracepoint_ns == pytest.approx(spent.reclaim_ns, rel=0.2, abs=0.1 * spent.held_back_ns)


def signal_all(processes: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for process in processes:
        process.send_signal(number)


@dataclass(frozen=True, slots=True)
class Spent:
    """Time of one task in the function of reclaim, by the kernel's tracer, which is in before the probe and out after.

    An emulated CPU takes up to 0.1 ms from the one to the other: an entry of less than a millisecond is no wait.
    """

    whole_ns: int
    held_back_ns: int
    reclaim_ns: int

    @classmethod
    def of(cls, passed: list[tuple[str, int]]) -> "Spent":
        whole_ns = held_back_ns = reclaim_ns = 0
        for (name, at_ns), (_, next_ns) in pairwise(passed):
            lasted_ns = next_ns - at_ns
            whole_ns += lasted_ns if name != "return" else 0
            held_back_ns += lasted_ns if name == "entry" and lasted_ns >= 1_000_000 else 0
            reclaim_ns += lasted_ns if name.endswith("_begin") else 0
        return cls(whole_ns, held_back_ns, reclaim_ns)
