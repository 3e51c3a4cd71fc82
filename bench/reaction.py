"""Reaction time of the response: from a hog's first instruction to the first rung, and from its end to the release.

A service takes requests at 30 % of the machine. A best-effort cgroup with two spinning processes for each CPU starts
from a standstill (SIGCONT); the time is taken until its `cpu.idle` reads 1. Then it is stopped again (SIGSTOP), and the
time is taken until the file reads what it read before. The agent is the real one, configured only with the two cgroups.

    python -m bench.reaction --onsets 100
    python -m bench.reaction --onsets 100 --layout pods

With --breakdown the agent logs its trips, and the time to the first rung is told in three parts: until the service
first lost anything (no request had come, or it had a CPU), from then until the kernel's budget was lost, and from the
trip to the end of its answer.

With --storm so many more best-effort cgroups are there, and CPU suppression changes the CPUs of all of them at each
onset and at each end: the first rung must not wait for these changes, nor for the budget that they use up.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from threading import Event

import numpy as np

from koordlet.agent.signals import until_signalled
from koordlet.demo.layout import PODS, SIBLINGS
from koordlet.demo.stage import Records, Stage, staged
from koordlet.host.cgroups.scratch import ScratchCgroup

SPIN = """
import os, signal
for _ in range({count} - 1):
    if os.fork() == 0:
        break
os.kill(os.getpid(), signal.SIGSTOP)
while True:
    pass
"""
SUPPRESS = """\
[strategies.node_slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cpuset"
"""
ONSET_LIMIT_SECONDS = 10.0
RELEASE_LIMIT_SECONDS = 30.0
BESIDE_SECONDS = 1.0
"""Seconds that the hog runs on after the first rung is applied."""


def idle(cgroup: ScratchCgroup) -> bool:
    """Return whether the best-effort cgroup, or the one above all best-effort ones, has cpu.idle set."""
    return (cgroup.directories[0] / "cpu.idle").read_text().strip() == "1"


def processes(cgroup: ScratchCgroup) -> list[int]:
    return [int(word) for word in (cgroup.directories[0] / "cgroup.procs").read_text().split()]


def stopped(pids: list[int]) -> bool:
    """Return whether all of them are stopped."""
    states = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return all(state == "T" for state in states)


def wait_until(condition: Callable[[], bool], limit_seconds: float, stop: Event, step_seconds: float = 0.001) -> float:
    """Seconds until the condition held; NaN when it did not in time."""
    began = time.monotonic()
    while not stop.is_set():
        if condition():
            return time.monotonic() - began
        if time.monotonic() - began > limit_seconds:
            break
        time.sleep(step_seconds)
    return float("nan")


def onset(stage: Stage, number: int, stop: Event) -> tuple[float, float]:
    """Seconds to the first rung and seconds to its release, of one hog in a cgroup of its own."""
    hog = ScratchCgroup(f"{stage.layout.classed[1]}/hog-{number}")
    lever = ScratchCgroup(stage.layout.batch_lever)
    try:
        count = 2 * (os.cpu_count() or 1)
        hog.spawn([sys.executable, "-c", SPIN.format(count=count)])
        wait_until(lambda: len(processes(hog)) == count and stopped(processes(hog)), 10.0, stop, 0.02)
        if stop.wait(2.0):  # let the agent discover the new cgroup
            return float("nan"), float("nan")
        pids = processes(hog)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        reached = wait_until(lambda: idle(hog) or idle(lever), ONSET_LIMIT_SECONDS, stop)
        stop.wait(BESIDE_SECONDS)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        released = wait_until(lambda: not idle(hog) and not idle(lever), RELEASE_LIMIT_SECONDS, stop, 0.01)
        return reached, released
    finally:
        hog.remove()


@contextlib.contextmanager
def storm(stage: Stage, count: int) -> Iterator[None]:
    """Make so many best-effort cgroups, whose CPUs the agent is told to keep at what the node has to spare."""
    made = [ScratchCgroup(f"{stage.layout.classed[1]}/storm-{number}") for number in range(count)]
    if count:
        stage.strategies, stage.more_settings = ("response", "cpu_suppress"), SUPPRESS
    try:
        yield
    finally:
        for cgroup in made:
            cgroup.remove()


@dataclass(frozen=True)
class Parts:
    """Parts of the time to one first rung, in seconds."""

    unharmed: float
    losing: float
    answering: float


ACTED = re.compile(r"lost [\d.]+ ms of ([\d.]+) ms to cgroup \d+; acted, ([\d.]+) ms after")


def parts(log: str, reached: float) -> Parts | None:
    """Return the parts by what the agent logged since the onset; None where no trip was acted upon."""
    found = ACTED.search(log)
    if found is None:
        return None
    losing, answering = (float(text) / 1e3 for text in found.groups())
    return Parts(max(reached - losing - answering, 0.0), losing, answering)


def summary(name: str, seconds: np.ndarray, goal: str) -> None:
    """Return a summary line; what never came counts as slower than all."""
    ranked = np.where(np.isnan(seconds), np.inf, seconds)
    p50, p99, most = (float(np.quantile(ranked, part, method="higher")) for part in (0.5, 0.99, 1.0))
    print(f"{name:<22} median {p50 * 1e3:8.1f} ms  p99 {p99 * 1e3:8.1f} ms  most {most * 1e3:8.1f} ms  (goal: {goal})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onsets", type=int, default=100)
    parser.add_argument("--service-ms", type=float, default=10.0, help="CPU time of the service's requests")
    parser.add_argument("--load", type=float, default=0.3, help="part of the machine that they need")
    parser.add_argument(
        "--layout",
        choices=(SIBLINGS.name, PODS.name),
        default=SIBLINGS.name,
        help="two sibling cgroups, or two Burstable pods as the kubelet lays them out",
    )
    parser.add_argument("--storm", type=int, default=0, metavar="CGROUPS", help="cgroups that change at each onset")
    parser.add_argument("--breakdown", action="store_true", help="tell where the time to the first rung goes")
    parser.add_argument("--json", type=Path, help="write every figure here")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("error: cgroups need root\nhint: run it with sudo", file=sys.stderr)
        return 3
    found: list[tuple[float, float]] = []
    broken_down: list[Parts] = []
    seconds = arguments.service_ms / 1e3
    layout = {layout.name: layout for layout in (SIBLINGS, PODS)}[arguments.layout]
    with until_signalled() as stop, staged(seconds, layout) as stage, storm(stage, arguments.storm):
        stage.start_service()
        stage.start_agent(acts=True, verbose=arguments.breakdown)
        rate = arguments.load * (os.cpu_count() or 1) / seconds
        os.sched_setscheduler(
            0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(10)
        )  # the measuring process must not be acted on
        records = Records(stage.start_client(rate, 20.0 * arguments.onsets + 60, 1))
        stop.wait(5.0)
        for number in range(arguments.onsets):
            if stop.is_set():
                break
            stage.check()
            records.read()
            logged = stage.log.stat().st_size
            found.append(onset(stage, number, stop))
            reached, released = found[-1]
            print(f"{number + 1:>4} first rung {reached * 1e3:8.1f} ms   release {released:6.2f} s", flush=True)
            each = parts(stage.log.read_bytes()[logged:].decode(errors="replace"), reached)
            if each is not None:
                broken_down.append(each)
    figures = np.array(found).reshape(-1, 2)
    if len(figures):
        summary("onset to first rung", figures[:, 0], "median <= 25 ms, p99 <= 120 ms")
        summary("end to release", figures[:, 1], "<= 10 s")
    for part in fields(Parts) if broken_down else ():
        summary(f"  {part.name}", np.array([getattr(each, part.name) for each in broken_down]), "-")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"first_rung_seconds": figures[:, 0].tolist(), "release_seconds": figures[:, 1].tolist()})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
