"""Memory stalls from the running kernel, held against the kernel's own tracepoint counts and OOM counts."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.frame import CGROUP, HOST, Reading
from api.metrics import MEMORY_CAUSES
from probes.memory import COUNT_PAGES, Memory
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.tracepoints import TracepointCounter

pytestmark = pytest.mark.kernel

MIB = 1 << 20
LIMIT_BYTES = 32 * MIB
SMALL_NODE_KIB = 3 << 20

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


def start(cgroup: TestCgroup, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-S", "-c", program, *arguments]
    return cgroup.spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def go(process: subprocess.Popen[bytes]) -> bytes:
    """Let a waiting child work; returns the line it prints when it is done."""
    assert process.stdin and process.stdout
    process.stdin.write(b"go\n")
    process.stdin.flush()
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


def test_global_reclaim_is_the_neighbours(probe: Memory, tree: CgroupTree, tmp_path: Path) -> None:
    """Needs a node small enough to be pressed without harm to others: a virtual machine."""
    if memory_total_kib() > SMALL_NODE_KIB:
        pytest.skip("this node has too much memory to press it all: run in a small virtual machine")
    hole = tmp_path / "hole"
    with hole.open("wb") as stream:
        stream.truncate(memory_total_kib() << 10)
    with tree.make_cgroup("hog") as hog, tree.make_cgroup("victim") as victim:
        was, missed_before = probe.read(), missed_stalls(probe)
        reader = start(victim, READER, str(hole), "1000")
        counter = TracepointCounter.of("vmscan/mm_vmscan_direct_reclaim_begin", reader.pid)
        assert reader.stdin
        reader.stdin.write(b"go\n")
        reader.stdin.flush()
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
        assert reclaims - missed <= counts["global"] <= reclaims
        assert (counts["own_limit"], counts["ancestor_limit"]) == (0, 0)
        table, blame = reading.tables[CGROUP], reading.tables["memory.blame"]
        mine, named = table.ids == victim.cgroup_id, blame.ids == victim.cgroup_id
        own = int(table.columns["memory.stall_global_self_ns"][mine].sum())
        others = int(blame.columns["memory.blame_ns"][named].sum())
        assert own + others == int(table.columns["memory.stall_global_ns"][mine].sum())
        assert blame.columns["memory.blame_ns"][named & (blame.keys["culprit"] == hog.cgroup_id)].sum() > 0
        wakes = [int(r.tables[HOST].columns["memory.kswapd_wakes"][0]) for r in (was, reading)]
        assert wakes[1] > wakes[0]
