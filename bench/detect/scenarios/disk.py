"""Disk scenarios: a neighbour keeps the victim's disk busy.

Loads go around the page cache: what a thread writes through it is written by kernel threads later, and cgroup v1 does
not know its owner. So floods of buffered writes are left out, and a file system's journal is the kernel's.
"""

from bench.detect import loads
from bench.detect.claims import Claim, Proof, Scenario
from bench.detect.disk import hung
from bench.detect.measures import STALLED_IO
from bench.detect.stage import HARM_SECONDS, RECOVER_SECONDS, SETTLE_SECONDS, Stage

_PACED_READS = (
    "--rw=randread",
    "--bs=4k",
    "--ioengine=psync",
    "--size=32m",
    "--rate_iops=200",
    "--rate_process=poisson",
)
_PACED_SYNCS = ("--rw=randwrite", "--bs=4k", "--ioengine=psync", "--size=32m", "--fdatasync=1", "--rate_iops=30")


def _reads(stage: Stage) -> None:
    disk = stage.disk()
    loads.lay_out(disk.mount / "victim", 32)
    loads.lay_out(disk.mount / "flood", 64)
    stage.start("victim", loads.fio("victim", disk.mount / "victim", *_PACED_READS), stage.near)
    stage.wait(SETTLE_SECONDS)
    flood = ("--rw=randread", "--bs=256k", "--ioengine=libaio", "--iodepth=16", "--size=64m")
    with stage.harm():
        stage.start("flood", loads.fio("flood", disk.mount / "flood", *flood), stage.far)
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _syncs(stage: Stage) -> None:
    disk = stage.disk()
    loads.lay_out(disk.mount / "victim", 32)
    loads.lay_out(disk.mount / "flood", 64)
    stage.start("victim", loads.fio("victim", disk.mount / "victim", *_PACED_READS), stage.near)
    stage.wait(SETTLE_SECONDS)
    flood = ("--rw=randwrite", "--bs=64k", "--ioengine=psync", "--size=64m", "--fdatasync=1", "--numjobs=4", "--thread")
    with stage.harm():
        stage.start("flood", loads.fio("flood", disk.mount / "flood", *flood), stage.far)
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _writes(stage: Stage) -> None:
    disk = stage.disk()
    loads.lay_out(disk.mount / "victim", 32)
    loads.lay_out(disk.mount / "flood", 64)
    stage.start("victim", loads.fio("victim", disk.mount / "victim", *_PACED_SYNCS), stage.near)
    stage.wait(SETTLE_SECONDS)
    flood = ("--rw=write", "--bs=1m", "--ioengine=libaio", "--iodepth=8", "--size=64m")
    with stage.harm():
        stage.start("flood", loads.fio("flood", disk.mount / "flood", *flood), stage.far)
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _hung(stage: Stage) -> None:
    disk = stage.disk()
    loads.lay_out(disk.mount / "victim", 32)
    stage.start("victim", loads.fio("victim", disk.mount / "victim", *_PACED_READS), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm(), hung(disk.server):
        stage.wait(HARM_SECONDS)
    stage.wait(RECOVER_SECONDS)


def _hung_files(stage: Stage) -> None:
    file, server = stage.served_file()
    cached = ("--rw=randread", "--bs=4k", "--ioengine=psync", "--size=256m", "--direct=0", "--rate_iops=20")
    stage.start("victim", loads.fio("victim", file, *cached), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm(), hung(server):
        stage.wait(HARM_SECONDS)
    stage.wait(RECOVER_SECONDS)


def _delayed(culprit: str) -> tuple[Claim, ...]:
    return (
        Claim("victim", "blockio", "delay", culprit),
        Claim(culprit, "blockio", "delay", tolerated=True),
        *(Claim(culprit, "cpu", cause, tolerated=True) for cause in ("contention", "own_threads")),
    )


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "read-flood",
        "large reads, sixteen deep, ahead of small ones",
        _reads,
        _delayed("flood"),
        (Proof("victim", STALLED_IO, 0.1),),
    ),
    Scenario(
        "sync-flood",
        "four writers that flush after every write",
        _syncs,
        _delayed("flood"),
        (Proof("victim", STALLED_IO, 0.1),),
    ),
    Scenario(
        "write-flood",
        "large writes around the page cache against small synced ones",
        _writes,
        _delayed("flood"),
        (Proof("victim", STALLED_IO, 0.1),),
    ),
    Scenario(
        "hung-disk",
        "a disk that answers nothing for as long as the harm lasts",
        _hung,
        (Claim("victim", "blockio", "stalled"),),
        (Proof("victim", STALLED_IO, 0.5),),
    ),
    Scenario(
        "hung-network-files",
        "a file system without a disk, as over a network, that answers nothing for as long as the harm lasts",
        _hung_files,
        (Claim("victim", "pressure", "io"),),
        (Proof("victim", STALLED_IO, 0.5),),
    ),
)
