"""What two users of a disk that is slow at times by itself are said to lose to one another; the truth is nothing.

    sudo .venv/bin/python -m bench.disk_variance [--seconds 3600] [--spread 0.5] [--floods 20]

The disk serves every request in a time of its own, lognormal around 2 ms, whatever else is outstanding
(`bench.detect.slow_disk` on a loop device). Two fio in two cgroups read from it around the page cache, at random times.
Prints device time, excess and blame of each, once a minute and at the end, and every verdict about them of the agent as
users run it; both should be none. Then a third cgroup floods the same disk, so many times, with more requests than are
served at a time: how many floods the agent names as the culprit, and after how long. Wants two CPUs: what fio waits for
a CPU is the disk's to both. An hour is what a figure to be quoted takes.
"""

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from api.frame import CGROUP, KERNEL_ID, Table
from api.verdict_text import in_words
from api.verdicts import Verdict, VerdictState
from bench.detect import loads
from bench.detect.disk import bare_disk
from bench.detect.subject import Subject, SubjectError
from bench.stolen import StolenTime
from bench.stolen import share as stolen_share
from detector.evaluation.intervals import share_interval
from probes.blockio import BlockIo
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup

REPORT_SECONDS = 60.0
FLOOD = ("--rw=randread", "--bs=64k", "--ioengine=libaio", "--iodepth=64")
FLOOD_SECONDS = 10.0
"""At most; a flood ends where it is named."""
GOAL_SECONDS = 3.0
CALM_SECONDS = 120.0
"""At most, between floods: until no verdict is open. A verdict that comes back within a minute stays for a minute."""
SETTLE_SECONDS = 5.0
WARM_UP_SECONDS = 10.0
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


@dataclass(frozen=True, slots=True)
class TwoReaders:
    """What runs."""

    device: Path
    cgroups: dict[str, TestCgroup]
    _processes: dict[str, subprocess.Popen[bytes]]
    _probe: BlockIo

    def check_running(self) -> None:
        """Raises LoadEndedError where one has ended."""
        for name, process in self._processes.items():
            loads.check_running(f"the {name} reader", process)

    def readings(self, seconds: float, wait: Callable[[float], object] = time.sleep) -> Iterator[dict[str, Share]]:
        """Yield what they lost so far, once a minute and at the end; `wait` lets so many seconds pass.

        Raises LoadEndedError.
        """
        until, last = time.monotonic() + seconds, time.monotonic()
        while (now := time.monotonic()) < until:
            wait(min(1.0, until - now))
            self.check_running()
            reading = self._probe.read()
            if time.monotonic() - last >= min(REPORT_SECONDS, seconds) or time.monotonic() >= until:
                last = time.monotonic()
                dense, blame = reading.tables[CGROUP], reading.tables["blockio.blame"]
                yield {name: _share(dense, blame, cgroup.cgroup_id) for name, cgroup in self.cgroups.items()}


@contextmanager
def two_readers(spread: float, rate: int) -> Iterator[TwoReaders]:
    """Start them. Raises OSError without FUSE or loop devices."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koord-variance-")))
        device, _ = stack.enter_context(bare_disk(folder, "0", spread))
        probe = BlockIo.open(Kernel(), ProbeLimits())
        stack.callback(probe.close)
        tree = CgroupTree.detect()
        cgroups, processes = {}, {}
        for name, cpu in (("first", "0"), ("second", "1")):
            cgroups[name] = stack.enter_context(tree.make_cgroup(f"variance-{name}"))
            argv = loads.fio(name, device, *READS, f"--rate_iops={rate}")
            processes[name] = cgroups[name].spawn(argv, cpus=cpu)
            stack.callback(_end, processes[name])
        yield TwoReaders(device, cgroups, processes, probe)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _share(dense: Table, blame: Table, identity: int) -> Share:
    sums = {column: int(values[dense.ids == identity].sum()) for column, values in dense.columns.items()}
    others = (blame.ids == identity) & (blame.keys["culprit"] != np.uint64(KERNEL_ID))
    blamed_ns = int(blame.columns["blockio.blame_ns"][others].sum())
    device_ns, excess_ns = sums["blockio.device_ns"], sums["blockio.excess_ns"]
    return Share(sums["blockio.ios"], device_ns / 1e9, excess_ns / 1e9, blamed_ns / 1e9)


class Witness:
    """The agent's verdicts about the readers."""

    def __init__(self, subject: Subject, readers: TwoReaders) -> None:
        self._subject = subject
        self._paths = {cgroup.path for cgroup in readers.cgroups.values()}
        self.opened: list[Verdict] = []
        self._open: dict[tuple[str, str], Verdict] = {}

    def wait(self, seconds: float) -> list[Verdict]:
        """Let so many seconds pass; returns the lines about the readers. Raises SubjectError where the agent ends."""
        lines = [each for each in self._subject.poll(seconds) if each.victim in self._paths]
        for each in lines:
            if each.state is VerdictState.OPEN:
                self.opened.append(each)
            self._open[each.victim, each.rule] = each
            if each.state is VerdictState.CLOSE:
                del self._open[each.victim, each.rule]
        return lines

    @property
    def is_calm(self) -> bool:
        """Whether no verdict about the readers is open."""
        return not self._open


def flood(readers: TwoReaders, witness: Witness, number: int) -> float | None:
    """Flood the disk until a verdict opens that names the culprit; returns the seconds that it took, None where none
    did."""
    with CgroupTree.detect().make_cgroup(f"variance-flood-{number}") as cgroup:
        began, until = time.time(), time.monotonic() + FLOOD_SECONDS
        process = cgroup.spawn(loads.fio("flood", readers.device, *FLOOD), cpus="0")
        try:
            while (left := until - time.monotonic()) > 0:
                for verdict in witness.wait(min(0.1, left)):
                    culprits = [each.path for each in verdict.culprits[:1]]
                    if verdict.resource == "blockio" and culprits == [cgroup.path]:
                        return verdict.time - began
            return None
        finally:
            _end(process)


def _tell_floods(readers: TwoReaders, witness: Witness, count: int) -> None:
    taken: list[float] = []
    begun = 0
    for number in range(1, count + 1):
        until = time.monotonic() + CALM_SECONDS
        while not witness.is_calm and time.monotonic() < until:
            witness.wait(1.0)
        if not witness.is_calm:
            print(f"flood {number}: left out, a verdict about the readers stays open", flush=True)
            continue
        witness.wait(SETTLE_SECONDS)
        begun += 1
        seconds = flood(readers, witness, number)
        readers.check_running()
        print(f"flood {number}: " + ("not named" if seconds is None else f"named after {seconds:.2f} s"), flush=True)
        taken += [] if seconds is None else [seconds]
    soon = sum(each < GOAL_SECONDS for each in taken)
    low, high = share_interval(soon, begun)
    print(
        f"{soon} of {begun} floods named within {GOAL_SECONDS:g} s ({100 * low:.0f} to {100 * high:.0f} %)"
        + (f", after {statistics.median(taken):.2f} s (median), {max(taken):.2f} s (most)" if taken else "")
    )


@click.command()
@click.option("--seconds", default=3600.0, show_default=True)
@click.option("--spread", default=0.5, show_default=True, help="Standard deviation of the logarithm.")
@click.option("--rate", default=150, show_default=True, help="Reads a second of each.")
@click.option("--floods", default=20, show_default=True, help="Afterwards.")
def main(seconds: float, spread: float, rate: int, floods: int) -> None:
    """Measure what two independent users of a disk are said to lose, and how soon a flood is named."""
    try:
        _measure(seconds, spread, rate, floods)
    except (SubjectError, loads.LoadEndedError) as error:
        raise click.ClickException(str(error)) from error


def _measure(seconds: float, spread: float, rate: int, floods: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="koord-variance-") as folder,
        closing(StolenTime()) as stolen,
        Subject(Path(folder)) as subject,
        two_readers(spread, rate) as readers,
    ):
        witness = Witness(subject, readers)
        witness.wait(WARM_UP_SECONDS)
        witness.opened.clear()
        for shares in readers.readings(seconds, wait=witness.wait):
            for name, share in shares.items():
                print(
                    f"{name:<7} {share.ios:>9} IOs  device {share.device_seconds:9.1f} s  "
                    f"excess {share.excess_seconds:7.2f} s ({100 * share.excess_ratio:.2f} %)  "
                    f"blamed {share.blamed_seconds:7.2f} s",
                    flush=True,
                )
        stolen.look()
        print(f"{100 * stolen_share(stolen.looks):.1f} % of the CPUs' time was stolen, the disk's server's too")
        on_disk = sum(each.resource == "blockio" for each in witness.opened)
        print(f"{on_disk} verdicts on the disk and {len(witness.opened) - on_disk} others about them in {seconds:g} s")
        for verdict in witness.opened:
            print(f"  {time.strftime('%H:%M:%S', time.localtime(verdict.time))} {in_words(verdict)}")
        if floods:
            _tell_floods(readers, witness, floods)


if __name__ == "__main__":
    main()
