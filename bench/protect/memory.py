"""Memory victim: a service that grows and reads files, beside work that holds memory and floods the page cache.

Both are below one limited cgroup and each has a CPU to itself, so that memory is all they share.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import click

from bench.protect.columns import Alone, Column, Ours, Suppress, Unprotected
from bench.protect.measurement import watch
from koordlet.demo.measure import DemoPhase
from koordlet.demo.stage import ROOT, Records, Stage
from koordlet.host.cgroups.scratch import ScratchCgroup

MIB = 1 << 20
LIMIT_BYTES = 1 << 30
SERVICE_BYTES, HELD_BYTES = LIMIT_BYTES * 45 // 100, LIMIT_BYTES * 30 // 100
"""Sizes that the service grows to, and that the best-effort work holds besides page cache."""
FILE_BYTES, FLOOD_BYTES = 64 * MIB, 4 * LIMIT_BYTES
REQUESTS_PER_SECOND = 100.0
SETTLE_SECONDS = 6.0
HEADROOM = """\
evict = true

[strategies.node_slo.extensions.memoryHeadroom]
enable = true
"""
"""Begins in the table [enforcer]: without `evict` no limit is set that kills, as v1's does."""


def lay_out(stage: Stage) -> None:
    """The limit, the service's file, and a sparse file for the other: its reads come from no disk."""
    _set(ScratchCgroup(ROOT), ("memory.max", "memory.limit_in_bytes"), str(LIMIT_BYTES))
    (stage.directory / "served").write_bytes(os.urandom(FILE_BYTES))
    with (stage.directory / "flood").open("wb") as file:
        file.truncate(FLOOD_BYTES)
    subprocess.run(["sync", "-f", str(stage.directory)], check=True)
    stage.strategies, stage.more_settings = ("response", "memory_headroom"), HEADROOM


def _set(cgroup: ScratchCgroup, names: tuple[str, str], text: str) -> None:
    """Write the file of cgroup v2, or without it that of v1."""
    has_v2 = any((directory / names[0]).exists() for directory in cgroup.directories)
    cgroup.write(names[0] if has_v2 else names[1], text)


class Floor(Column):
    """Protection that cgroups offer: memory.low for the service; on v1 only the soft limit of the other."""

    name = "static weights"

    def set_up(self, stage: Stage) -> None:
        if any((directory / "memory.low").exists() for directory in stage.online.directories):
            stage.online.write("memory.low", str(LIMIT_BYTES * 6 // 10))
        else:
            stage.batch.write("memory.soft_limit_in_bytes", str(HELD_BYTES))

    def take_down(self, stage: Stage) -> None:
        if any((directory / "memory.low").exists() for directory in stage.online.directories):
            stage.online.write("memory.low", "0")
        else:
            stage.batch.write("memory.soft_limit_in_bytes", "-1")


class Limit(Column):
    """Fixed limit on the best-effort work: all that a service of known size leaves, less a tenth."""

    name = "fixed quota"

    def set_up(self, stage: Stage) -> None:
        _set(
            stage.batch, ("memory.high", "memory.limit_in_bytes"), str(LIMIT_BYTES - SERVICE_BYTES - LIMIT_BYTES // 10)
        )

    def take_down(self, stage: Stage) -> None:
        v2 = any((directory / "memory.high").exists() for directory in stage.batch.directories)
        _set(stage.batch, ("memory.high", "memory.limit_in_bytes"), "max" if v2 else "-1")


def memory_columns() -> list[Column]:
    """Columns for a memory victim; the suppress rule acts on CPUs only and is shown doing nothing."""
    return [Alone(), Unprotected(), Floor(), Suppress(), Limit(), Ours()]


def stalled_seconds(stage: Stage) -> float:
    """Return the time with some task of the service stalled on memory so far; NaN without PSI."""
    for directory in stage.online.directories:
        pressure = directory / "memory.pressure"
        if pressure.exists():
            return int(pressure.read_text().splitlines()[0].rpartition("total=")[2]) / 1e6
    return float("nan")


def measure(stage: Stage, column: Column, *, seconds: float, seed: int, stop: Event) -> DemoPhase:
    """Run one column once from an empty page cache; the work is counted in blocks of 1 MiB."""
    _forget_pages(stage)
    column.set_up(stage)
    try:
        if column.with_batch:
            _start_flood(stage)
        stalled = stalled_seconds(stage)
        arguments = [REQUESTS_PER_SECOND, seconds + SETTLE_SECONDS, seed, SERVICE_BYTES // (256 << 10), 0]
        program = [sys.executable, "-m", "bench.protect.grower", str(stage.directory / "served")]
        grower = stage.online.spawn([*program, *map(str, arguments)], stdout=subprocess.PIPE)
        records = Records(stage.reading(grower))
        start = time.monotonic()
        phase = watch(
            stage, column, records, stage.blocks_done, settle_seconds=SETTLE_SECONDS, seconds=seconds, stop=stop
        )
        part = (stalled_seconds(stage) - stalled) / (time.monotonic() - start)
        click.echo(f"memory {column.name}: the service stalled {part:.2%} of the time on memory", err=True)
        return phase
    finally:
        column.take_down(stage)
        stage.stop_programs()


def _start_flood(stage: Stage) -> None:
    """Start the best-effort work and wait until it holds its memory."""
    cpu = (os.cpu_count() or 1) - 1
    counter = stage.directory / "blocks"
    arguments = [counter, stage.directory / "flood", HELD_BYTES, cpu]
    flood = stage.batch.spawn([sys.executable, "-m", "bench.protect.flooder", *map(str, arguments)])
    stage.running(flood)
    while not stage.blocks_done() and flood.poll() is None:
        time.sleep(0.05)


def _forget_pages(stage: Stage) -> None:
    """Drop page cache, which belongs to the cgroup that read it first, even in an earlier run."""
    for name in ("served", "flood"):
        descriptor = os.open(Path(stage.directory, name), os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
