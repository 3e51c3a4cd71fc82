"""A slow disk with a file system that loads may fill, and a file that no disk is below, as on a network file system."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.detect import slow_disk

DISK_BYTES = 256 << 20
# A bound on a hang, not a figure: an emulated machine takes more than ten seconds.
READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted file system and the device below it."""

    device: Path
    mount: Path
    server: int
    """Process that serves it; stopped, the disk hangs."""


@contextmanager
def hung(server: int) -> Iterator[None]:
    """Let the process that serves a disk or a file answer nothing within it."""
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


@contextmanager
def mounted_disk(folder: Path, cpu: str, spread: float | None = None) -> Iterator[Disk]:
    """Make one below `folder`, served on one CPU, and mount it; `spread` as in `slow_disk`.

    Raises OSError where the host has no FUSE or no loop devices.
    """
    mount = folder / "mount"
    mount.mkdir()
    with bare_disk(folder, cpu, spread) as (device, server):
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(device))
        _run("mount", "-o", "noatime", str(device), str(mount))
        try:
            yield Disk(device, mount, server)
        finally:
            subprocess.run(["umount", str(mount)], check=False)


@contextmanager
def bare_disk(folder: Path, cpu: str, spread: float | None = None) -> Iterator[tuple[Path, int]]:
    """Make one without a file system; yields the device and the process that serves it. Raises OSError likewise."""
    with served_file(folder, cpu, spread) as (backing, server), _loop_device(backing) as device:
        yield device, server


@contextmanager
def served_file(folder: Path, cpu: str, spread: float | None = None) -> Iterator[tuple[Path, int]]:
    """Make a file of `DISK_BYTES` in a file system in user space; yields it and the process that serves it.

    Raises OSError where the host has no FUSE.
    """
    where = folder / "backing"
    where.mkdir()
    served = [sys.executable, "-m", slow_disk.__name__, str(where), str(DISK_BYTES)]
    served += [] if spread is None else [str(spread)]
    server = subprocess.Popen(["taskset", "-c", cpu, *served])
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not (where / slow_disk.NAME).exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise OSError("no file system in user space could be mounted: is there a /dev/fuse?")
            time.sleep(0.01)
        yield where / slow_disk.NAME, server.pid
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=False)
        server.terminate()
        try:
            server.wait(timeout=READY_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def _loop_device(backing: Path) -> Iterator[Path]:
    device = _run("losetup", "--find", "--show", "--direct-io=on", str(backing)).strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
