"""What two users of a disk that is slow at times by itself are said to lose to one another; the truth is nothing.

    sudo .venv/bin/python -m bench.disk_variance [--seconds 3600] [--spread 0.5]

The disk serves every request in a time of its own, lognormal around 2 ms, whatever else is outstanding
(`bench.detect.slow_disk` on a loop device). Two fio in two cgroups read from it around the page cache, at random times.
Prints device time, excess and blame of each, once a minute and at the end. Wants two CPUs: what fio waits for a CPU is
the disk's to both. An hour is what a figure to be quoted takes.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from api.frame import CGROUP, KERNEL_ID
from bench.detect import loads
from bench.detect.disk import bare_disk
from probes.blockio import BlockIo
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree

REPORT_SECONDS = 60.0
READS = ("--rw=randread", "--bs=4k", "--ioengine=psync", "--rate_process=poisson", "--thread")


@dataclass(frozen=True, slots=True)
class Share:
    """One user's seconds."""

    ios: int
    device_seconds: float
    excess_seconds: float
    blamed_seconds: float
    """On other cgroups."""

    @property
    def excess_ratio(self) -> float:
        """Excess as a part of the device time."""
        return self.excess_seconds / self.device_seconds if self.device_seconds else 0.0


@contextmanager
def two_readers(seconds: float, spread: float, rate: int) -> Iterator[Iterator[dict[str, Share]]]:
    """Start them, and yield an iterator of what they lost so far. Raises OSError without FUSE or loop devices."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koord-variance-")))
        device, _ = stack.enter_context(bare_disk(folder, "0", spread))
        probe = BlockIo.open(Kernel(), ProbeLimits())
        stack.callback(probe.close)
        tree = CgroupTree.detect()
        cgroups = {}
        for name, cpu in (("first", "0"), ("second", "1")):
            cgroups[name] = stack.enter_context(tree.make_cgroup(f"variance-{name}"))
            argv = loads.fio(name, device, *READS, f"--rate_iops={rate}")
            stack.callback(_end, cgroups[name].spawn(argv, cpus=cpu))
        yield _readings(probe, {name: cgroup.cgroup_id for name, cgroup in cgroups.items()}, seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _readings(probe: BlockIo, cgroups: dict[str, int], seconds: float) -> Iterator[dict[str, Share]]:
    until, last = time.monotonic() + seconds, time.monotonic()
    while (now := time.monotonic()) < until:
        time.sleep(min(1.0, until - now))
        reading = probe.read()
        if time.monotonic() - last >= min(REPORT_SECONDS, seconds) or time.monotonic() >= until:
            last = time.monotonic()
            dense, blame = reading.tables[CGROUP], reading.tables["blockio.blame"]
            found = {}
            for name, identity in cgroups.items():
                sums = {column: int(values[dense.ids == identity].sum()) for column, values in dense.columns.items()}
                others = (blame.ids == identity) & (blame.keys["culprit"] != np.uint64(KERNEL_ID))
                blamed_ns = int(blame.columns["blockio.blame_ns"][others].sum())
                device_ns, excess_ns = sums["blockio.device_ns"], sums["blockio.excess_ns"]
                found[name] = Share(sums["blockio.ios"], device_ns / 1e9, excess_ns / 1e9, blamed_ns / 1e9)
            yield found


@click.command()
@click.option("--seconds", default=3600.0, show_default=True)
@click.option("--spread", default=0.5, show_default=True, help="Standard deviation of the logarithm.")
@click.option("--rate", default=150, show_default=True, help="Reads a second of each.")
def main(seconds: float, spread: float, rate: int) -> None:
    """Measure what two independent users of a disk are said to lose."""
    with two_readers(seconds, spread, rate) as readings:
        for shares in readings:
            for name, share in shares.items():
                print(
                    f"{name:<7} {share.ios:>9} IOs  device {share.device_seconds:9.1f} s  "
                    f"excess {share.excess_seconds:7.2f} s ({100 * share.excess_ratio:.2f} %)  "
                    f"blamed {share.blamed_seconds:7.2f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
