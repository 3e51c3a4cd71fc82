"""The victim stalls to find memory: its own limit, its pod's, or a node that a neighbour has filled."""

import time
from collections.abc import Callable

from bench.detect import loads
from bench.detect.claims import Claim, Proof, Scenario
from bench.detect.measures import MEMORY_BYTES, REFAULTS, STALLED_CPU, STALLED_MEMORY, measure, refaults
from bench.detect.services import PACED
from bench.detect.stage import HARM_SECONDS, RECOVER_SECONDS, SETTLE_SECONDS, SHARED_MEMORY, Stage

MIB = 1 << 20
POD_LIMIT_BYTES = 64 * MIB
LOST_PAGES = 2000.0
"""Pages read again a second from which a service is harmed; ordinary reclaim takes some of the coldest."""
LEAST_STALLED = 0.05
"""Seconds a second that prove harm."""
FILL_SECONDS = 30.0
"""A neighbour takes what is free before it takes the pages of others, on a slow machine for so long."""
LEFT_BYTES = 4096 * MIB
"""Memory of the node that stays free of the flood: enough for all else that runs."""
_CACHED = ("--direct=0", "--ioengine=psync", "--invalidate=0", "--bs=256k")


def _own_limit(stage: Stage) -> None:
    disk = stage.disk()
    loads.lay_out(disk.mount / "log", 128)
    stage.cgroup("victim").set_memory_limit(24 * MIB)
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("victim", loads.fio("log", disk.mount / "log", "--rw=write", "--rate=60m", *_CACHED), stage.near)
        stage.wait(HARM_SECONDS)
    stage.stop("victim")
    stage.wait(RECOVER_SECONDS)


def _pods_limit(stage: Stage) -> None:
    disk, folder = stage.disk(), stage.folder()
    loads.lay_out(disk.mount / "flood", 128)
    loads.hole(folder / "data", 512)
    stage.cgroup("pod").set_memory_limit(POD_LIMIT_BYTES)
    stage.start("pod/victim", loads.fio("victim", folder / "data", "--rw=read", "--rate=20m", *_CACHED), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("pod/sidecar", loads.fio("flood", disk.mount / "flood", "--rw=write", *_CACHED), stage.far)
        stage.wait(HARM_SECONDS)
        stage.stop("pod/sidecar")
    stage.wait(RECOVER_SECONDS)


def _fresh_sibling(stage: Stage) -> None:
    disk, folder = stage.disk(), stage.folder()
    loads.lay_out(disk.mount / "flood", 128)
    loads.hole(folder / "data", 512)
    stage.cgroup("pod").set_memory_limit(POD_LIMIT_BYTES)
    stage.start("pod/victim", loads.fio("victim", folder / "data", "--rw=read", "--rate=20m", *_CACHED), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        vm = ("--vm", "1", "--vm-bytes", "48m", "--vm-keep", "--vm-method", "write64")
        stage.start("pod/fresh", loads.stress(*vm), stage.far)
        stage.wait(HARM_SECONDS)
        stage.stop("pod/fresh")
    stage.wait(RECOVER_SECONDS)


def _node(stage: Stage) -> None:
    folder, in_memory = stage.folder(), stage.folder(SHARED_MEMORY)
    loads.hole(folder / "flood", 16384)
    stage.leave_memory(LEFT_BYTES)
    fill = loads.fio("fill", folder / "flood", "--rw=read", *_CACHED)
    stage.start("flood", fill, stage.far)
    stage.wait(SETTLE_SECONDS)
    stage.stop("flood")
    stage.start("victim", loads.rewrite(in_memory / "victim", 128), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        flood = ("--rw=read", "--numjobs=2", "--thread", "--offset_increment=8g", "--size=8g")
        stage.start("flood", loads.fio("flood", folder / "flood", *flood, *_CACHED), stage.far)
        vm = ("--vm", "1", "--vm-bytes", "1g", "--vm-method", "write64")
        stage.start("flood", loads.stress(*vm), stage.far)
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _thief(stage: Stage) -> None:
    folder = stage.folder()
    loads.hole(folder / "victim", 1024)
    loads.hole(folder / "thief", 16384)
    stage.leave_memory(LEFT_BYTES)
    stat = stage.cgroup("victim").memory_dir / "memory.stat"
    stage.meter.add("victim", REFAULTS, lambda: refaults(stat))
    reads = ("--rw=randread", "--direct=0", "--ioengine=psync", "--invalidate=0")
    stage.start("victim", loads.fio("victim", folder / "victim", *reads, "--bs=4k", "--rate_iops=20000"), stage.near)
    stage.wait(2 * SETTLE_SECONDS)
    stage.start("thief", loads.fio("thief", folder / "thief", *reads, "--bs=64k"), stage.far)
    began = _until_harmed(stage, lambda: refaults(stat), LOST_PAGES)
    with stage.harm(began):
        stage.wait(2 * HARM_SECONDS)
        stage.stop("thief")
    stage.wait(RECOVER_SECONDS)


def _until_harmed(stage: Stage, counter: Callable[[], float], rate: float) -> float:
    """Wait for a second in which a counter grows by what proves harm, and return the time at which it began.

    Shorter spans have bursts that are no harm.
    """
    deadline = time.monotonic() + FILL_SECONDS
    while True:
        began, before = time.time(), counter()
        stage.wait(1.0)
        if counter() - before >= rate:
            return began
        if time.monotonic() > deadline:
            raise TimeoutError("the neighbour does no harm")


def _huge_pages(stage: Stage) -> None:
    folder = stage.folder()
    loads.hole(folder / "cache", 16384)
    stage.leave_memory(LEFT_BYTES)
    huge = ("--vm-madvise", "hugepage", "--vm-method", "write64")
    stage.start("victim", loads.stress("--vm", "1", "--vm-bytes", "256m", *huge), stage.near)
    stage.wait(SETTLE_SECONDS)
    # Its files take what it gives back, so that there are no free huge pages the next time.
    reads = ("--rw=read", "--numjobs=2", "--thread", "--offset_increment=8g", "--size=8g")
    stage.start("hog", loads.fio("cache", folder / "cache", *reads, *_CACHED), stage.far)
    stage.start("hog", loads.stress("--vm", "2", "--vm-bytes", "2g", *huge), stage.far)
    victim = stage.cgroup("victim")
    began = _until_harmed(stage, lambda: measure(victim).get(STALLED_MEMORY, 0.0), LEAST_STALLED)
    with stage.harm(began):
        stage.wait(HARM_SECONDS)
        stage.stop("hog")
    stage.wait(RECOVER_SECONDS)


def _waits(role: str) -> tuple[Claim, ...]:
    """Tolerated: a load that floods a disk or a CPU with page cache waits for them too."""
    return tuple(Claim(role, resource, "", tolerated=True) for resource in ("cpu", "blockio", "memory"))


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "own-memory-limit",
        "a service writes more than its own limit holds",
        _own_limit,
        (Claim("victim", "memory", "own_limit", "[own limit]"), Claim("victim", "blockio", "", tolerated=True)),
        (Proof("victim", STALLED_MEMORY, 0.1),),
    ),
    Scenario(
        "pods-memory-limit",
        "a sidecar fills the pod's limit with what it writes",
        _pods_limit,
        (Claim("pod/victim", "memory", "ancestor_limit", "pod/sidecar"), *_waits("pod/sidecar")),
        (Proof("pod/victim", STALLED_MEMORY, 0.1), Proof("pod/sidecar", MEMORY_BYTES, POD_LIMIT_BYTES / 2)),
    ),
    Scenario(
        "sibling-fills-pod",
        "a container that just started holds three quarters of the pod's memory",
        _fresh_sibling,
        (Claim("pod/victim", "memory", "ancestor_limit", "pod/fresh"), *_waits("pod/fresh")),
        (Proof("pod/victim", STALLED_MEMORY, 0.05), Proof("pod/fresh", MEMORY_BYTES, POD_LIMIT_BYTES / 2)),
    ),
    Scenario(
        "page-cache-flood",
        "a neighbour fills the node's memory with what it reads, and takes and gives back a gigabyte at a time",
        _node,
        # Background reclaim keeps up as long as it finds a CPU, and the victim's is as good as any.
        (
            Claim("victim", "cpu", "contention", "[kernel]"),
            Claim("victim", "memory", "reclaim", tolerated=True),
            *_waits("flood"),
        ),
        (Proof("victim", STALLED_CPU, 0.1),),
    ),
    Scenario(
        "page-cache-thief",
        "a neighbour reads so much that a service's files leave the page cache",
        _thief,
        (
            Claim("victim", "memory", "refault", "thief"),
            *(Claim("victim", "memory", cause, tolerated=True) for cause in ("reclaim", "compaction")),
            Claim("victim", "pressure", "memory", tolerated=True),
            Claim("victim", "cpu", "contention", tolerated=True),
            *_waits("thief"),
        ),
        (Proof("victim", REFAULTS, LOST_PAGES),),
    ),
    Scenario(
        "huge-page-hog",
        "a neighbour takes and gives back memory in huge pages where little is left, and the service uses them too",
        _huge_pages,
        (
            Claim("victim", "memory", "compaction", "hog"),
            *(Claim("victim", resource, "", tolerated=True) for resource in ("cpu", "memory", "pressure")),
            *_waits("hog"),
        ),
        (Proof("victim", STALLED_MEMORY, LEAST_STALLED),),
    ),
)
