"""Disk victim: a service that reads blocks, beside best-effort work that reads all it can."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from bench.detect.disk import Disk
from bench.protect.columns import Column
from bench.protect.measurement import watch
from koordlet.demo.measure import DemoPhase
from koordlet.demo.stage import Records, Stage

BLOCK_DEVICES = Path("/sys/block")
READS_PER_SECOND = 60.0
SETTLE_SECONDS = 6.0
_FLOOD = (
    *("fio", "--name=flood", "--rw=randread", "--bs=128k", "--ioengine=libaio", "--iodepth=16", "--direct=1"),
    *("--size=64m", "--time_based", "--runtime=3600", "--output=/dev/null"),
)


def lay_out(disk: Disk) -> None:
    """Files for both, written once."""
    for name, mebibytes in (("victim", 32), ("flood", 64)):
        with (disk.mount / name).open("wb") as file:
            for _ in range(mebibytes):
                file.write(b"\x5a" * (1 << 20))
    subprocess.run(["sync", "-f", str(disk.mount)], check=True)


@contextmanager
def scheduler(disk: Disk, chosen: str) -> Iterator[None]:
    """Give the disk another scheduler, `bfq,strict_guarantees=1`, for a time; nothing where none is chosen.

    A loop device keeps its scheduler when the next file is attached to it.
    """
    if not chosen:
        yield
        return
    name, *files = chosen.split(",")
    queue = BLOCK_DEVICES / disk.device.name / "queue"
    before = re.findall(r"\[([^]]+)\]", (queue / "scheduler").read_text())
    (queue / "scheduler").write_text(name)
    try:
        for file, _, value in (one.partition("=") for one in files):
            (queue / "iosched" / file).write_text(value)
        yield
    finally:
        (queue / "scheduler").write_text(*before)


def bytes_read(stage: Stage) -> int:
    """Return the bytes read by the best-effort cgroup so far, from either version of the controller."""
    for directory in stage.batch.directories:
        for name in ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"):
            if (directory / name).exists():
                words = [line.split() for line in (directory / name).read_text().splitlines()]
                return sum(int(parts[2]) for parts in words if len(parts) == 3 and parts[1] == "Read")
        if (directory / "io.stat").exists():
            parts = (directory / "io.stat").read_text().split()
            return sum(int(part.partition("=")[2]) for part in parts if part.startswith("rbytes="))
    return 0


def measure(stage: Stage, column: Column, disk: Disk, *, seconds: float, seed: int, stop: Event) -> DemoPhase:
    """Run one column once; the work is counted in blocks of 4 KiB."""
    column.set_up(stage)
    try:
        path = disk.mount / "victim"
        arguments = [str(path), str(READS_PER_SECOND), str(seconds + SETTLE_SECONDS), str(seed)]
        reader = stage.online.spawn([sys.executable, "-m", "bench.protect.reader", *arguments], stdout=subprocess.PIPE)
        records = Records(stage.reading(reader))
        if column.with_batch:
            stage.running(stage.batch.spawn([*_FLOOD, f"--filename={disk.mount / 'flood'}"]))
        return watch(
            stage,
            column,
            records,
            lambda: bytes_read(stage) // 4096,
            settle_seconds=SETTLE_SECONDS,
            seconds=seconds,
            stop=stop,
        )
    finally:
        column.take_down(stage)
        stage.stop_programs()


def disk_number(disk: Disk) -> str:
    """Return major:minor."""
    return Path(f"/sys/class/block/{disk.device.name}/dev").read_text().strip()
