"""Overhead of measuring: switch-heavy loads bare, under our cpu probe, bpftrace's runqlat and empty programs in turn.

    sudo .venv/bin/python -m bench.overhead [--rounds 5] [--json]

Prints nanoseconds an event (the kernel's own BPF statistics, which cost both sides the same) and the slowdown of
the load against the bare run of the same round. Needs Debian's bpftrace, linux-perf and rt-tests (hackbench).
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

from probes import libbpf
from probes.cpu import Cpu
from probes.probe import Kernel, ProbeLimits

RUNQLAT = Path("/usr/sbin/runqlat.bt")
TRACEFS = Path("/sys/kernel/tracing")
EMPTY = "\n".join(f"tracepoint:sched:{name} {{ }}" for name in ("sched_switch", "sched_wakeup", "sched_wakeup_new"))
OBSERVERS = ("koord", "bpftrace", "empty")
LOADS = {
    "sched pipe": ["perf", "bench", "sched", "pipe", "-l", "100000"],
    "hackbench": ["hackbench", "-g", "4", "-l", "1000"],
}


@dataclass(slots=True)
class Cost:
    """Run time and runs of one program over all rounds."""

    run_time_ns: int = 0
    runs: int = 0

    @property
    def ns_per_event(self) -> float:
        """Mean run time."""
        return self.run_time_ns / self.runs if self.runs else float("nan")


@dataclass(slots=True)
class Side:
    """Everything measured under one observer."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    programs: dict[str, Cost] = field(default_factory=dict)

    def add(self, program: str, run_time_ns: int, runs: int) -> None:
        """Add one round's run time of a program."""
        cost = self.programs.setdefault(program, Cost())
        cost.run_time_ns += run_time_ns
        cost.runs += runs

    @property
    def ns_per_event(self) -> float:
        """Mean over all events of all programs."""
        return sum(c.run_time_ns for c in self.programs.values()) / max(1, sum(c.runs for c in self.programs.values()))


def run_load(command: list[str]) -> float:
    """Wall seconds of one run of a load."""
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - started


def measure_bare(side: Side) -> None:
    """Run every load without an observer."""
    for name, command in LOADS.items():
        side.seconds.setdefault(name, []).append(run_load(command))


def measure_koord(side: Side) -> None:
    """Run every load under our cpu probe, read once a second as an agent would (here: after each load)."""
    probe = Cpu.open(Kernel(), ProbeLimits())
    try:
        for name, command in LOADS.items():
            side.seconds.setdefault(name, []).append(run_load(command))
            probe.read()
        for stats in probe.stats():
            if stats.run_count:
                side.add(stats.name, stats.run_time_ns, stats.run_count)
    finally:
        probe.close()


@contextmanager
def bpftrace(text: str) -> Iterator[None]:
    """A script with three programs on the scheduler, attached."""
    with tempfile.NamedTemporaryFile("w", suffix=".bt") as script:
        script.write(text)
        script.flush()
        process = subprocess.Popen(
            ["bpftrace", script.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            deadline = time.monotonic() + 30
            while len(bpftrace_programs()) < 3:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise click.ClickException("bpftrace did not attach; run it by hand to see why")
                time.sleep(0.1)
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=30)


def bpftrace_programs() -> dict[str, tuple[int, int]]:
    """Run time and runs of each loaded formatted-tracepoint program on the scheduler."""
    listed = json.loads(subprocess.check_output(["bpftool", "prog", "show", "--json"]))
    return {
        program["name"]: (program.get("run_time_ns", 0), program.get("run_cnt", 0))
        for program in listed
        if program.get("type") == "tracepoint" and re.match(r"sched_(switch|wakeup)", program.get("name", ""))
    }


def measure_bpftrace(side: Side) -> None:
    """Run every load under bpftrace's own runqlat; its one kernel header is replaced by the value it is read for."""
    measure_script(side, RUNQLAT.read_text().replace("#include <linux/sched.h>", "#define TASK_RUNNING 0"))


def measure_empty(side: Side) -> None:
    """Run every load under programs that return at once, at the scheduler's tracepoints that both sides trace."""
    measure_script(side, EMPTY)


def measure_script(side: Side, text: str) -> None:
    """Run every load under a script of bpftrace."""
    with bpftrace(text):
        for name, command in LOADS.items():
            side.seconds.setdefault(name, []).append(run_load(command))
        for name, (run_time_ns, runs) in bpftrace_programs().items():
            side.add(name, run_time_ns, runs)


def report(sides: dict[str, Side]) -> dict[str, object]:
    """The figures as plain values."""
    bare = sides["bare"]
    figures: dict[str, object] = {}
    for name in OBSERVERS:
        side = sides[name]
        slowdown = {
            load: statistics.median(a / b for a, b in zip(side.seconds[load], bare.seconds[load], strict=True))
            for load in LOADS
        }
        figures[name] = {
            "ns_per_event": side.ns_per_event,
            "programs": {program: [cost.ns_per_event, cost.runs] for program, cost in side.programs.items()},
            "slowdown": slowdown,
        }
    for name in ("bpftrace", "empty"):
        figures[f"cost_ratio_to_{name}"] = sides["koord"].ns_per_event / sides[name].ns_per_event
    return figures


@click.command()
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object.")
def main(rounds: int, as_json: bool) -> None:
    """Compare the cost of our cpu probe with bpftrace's runqlat and with empty programs on switch-heavy loads."""
    for tool in ("bpftrace", "bpftool", "perf", "hackbench"):
        if not shutil.which(tool):
            raise click.ClickException(f"{tool} is not installed; run deploy/provision.sh test")
    if not (TRACEFS / "events").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", str(TRACEFS)], check=True)
    stats_fd = libbpf.enable_stats()
    sides = {name: Side() for name in ("bare", *OBSERVERS)}
    for turn in range(rounds):
        measure_bare(sides["bare"])
        measure_koord(sides["koord"])
        measure_bpftrace(sides["bpftrace"])
        measure_empty(sides["empty"])
        sys.stderr.write(f"round {turn + 1} of {rounds}\n")
    os.close(stats_fd)
    figures = report(sides)
    if as_json:
        print(json.dumps(figures))
        return
    for name in OBSERVERS:
        side: dict[str, dict[str, object]] = figures[name]  # type: ignore[assignment]
        print(f"{name}: {side['ns_per_event']:.0f} ns per event")
        for program, (ns, runs) in side["programs"].items():  # type: ignore[misc]
            print(f"    {program:<18} {ns:>6.0f} ns x {runs}")
        for load, ratio in side["slowdown"].items():
            print(f"    {load:<18} x{ratio:.3f} of bare (median)")
    print(f"cost of ours / cost of bpftrace's runqlat: {figures['cost_ratio_to_bpftrace']:.2f} (goal: at most 0.40)")
    print(f"cost of ours / cost of an empty program: {figures['cost_ratio_to_empty']:.2f} (goal: at most 2.50)")


if __name__ == "__main__":
    main()
