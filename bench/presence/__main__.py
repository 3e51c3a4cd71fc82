"""Benchmark of the agent's presence: what it costs a sub-millisecond service on the same node.

A service in a Burstable pod of the kubelet's layout answers at a fixed rate, on idle CPUs and beside a pod of the
BestEffort class that fills them, without the agent, with it observing and with it acting. Each repetition runs the arms
in an order of its own; the agent is a pod with the chart's request, or lives in the root cgroup with --host.

Requests that met time which a hypervisor stole do not count (`bench/stolen.py`); how many there were is said.
Ratios are medians over the repetitions, each to the run without the agent of its own, with a 95 % interval by
bootstrap: a goal within the interval is undecided, and takes more repetitions, six at least. Without the arm `without`
there are no ratios. With --programs the kernel counts during each run beside the agent what its BPF programs do for a
request, all that happens on the machine meanwhile included; counting costs time itself.

    python -m bench.presence --repeat 10
    python -m bench.presence --victim postgres --cpus full --host
"""

import json
import math
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import click
import numpy as np
from numpy.typing import NDArray

from bench.presence.programs import Program, Programs, counted, table
from bench.presence.servers import SERVERS, TimedAnswers, TimedServer, server_of
from bench.stolen import StolenTime, disturbed, share
from koordlet.agent.signals import until_signalled
from koordlet.demo.layout import BEST_EFFORT_POD
from koordlet.demo.stage import Stage, staged
from koordlet.host.cgroups.scratch import ScratchCgroup

ARMS = ("without", "observing", "acting")
CPUS = ("idle", "full")
QUANTILES = (0.5, 0.9, 0.99, 0.999)
GOAL_RATIO = 1.10
SETTLE_SECONDS = 2.0
AGENT_SECONDS = 6.0
"""Time for the agent to start and to meet the cgroups."""
AGENT_PATH = "/kubepods/burstable/pod5eb0c2f4-0000-4000-8000-000000000009"
AGENT_SHARES = 102
"""Of the chart's request of 100 millicores."""
LOOK_SECONDS = 0.01
"""Between looks at stolen time, which the kernel tells in ticks of as much."""
RESAMPLES = 4000
LEAST_RATIOS = 6
"""The least and the most of fewer hold their median between them less often than in 95 % of cases (1 - 2 / 2**n)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an arm."""

    quantiles: Floats
    """Seconds at QUANTILES of the requests that met no stolen time; NaN where too few are left for one."""
    everything: Floats
    """The same of all requests."""
    counted: int
    """Requests that met no stolen time."""
    requests: int
    stolen: float
    """Part of the time of all CPUs."""
    programs: list[Program]
    """What BPF programs did meanwhile; none where it was not asked for."""


Runs = Mapping[tuple[str, str], Sequence[Run]]


@click.command(help=__doc__)
@click.option("--victim", "victims", multiple=True, type=click.Choice(SERVERS), default=SERVERS, show_default=True)
@click.option("--cpus", "states", multiple=True, type=click.Choice(CPUS), default=CPUS, show_default=True)
@click.option("--arm", "arms", multiple=True, type=click.Choice(ARMS), default=ARMS, show_default=True)
@click.option("--repeat", default=10, show_default=True, help="Repetitions.")
@click.option("--seconds", default=20.0, show_default=True, help="Of each run, without settling.")
@click.option("--rate", default=1000.0, show_default=True, help="Requests a second.")
@click.option("--cgroups", default=50, show_default=True, help="Other cgroups on the node, with a sleeper in each.")
@click.option("--host", is_flag=True, help="The agent in the root cgroup instead of a pod.")
@click.option("--programs", is_flag=True, help="Count runs and time of BPF programs a request.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write every run here.")
def main(
    victims: tuple[str, ...],
    states: tuple[str, ...],
    arms: tuple[str, ...],
    repeat: int,
    seconds: float,
    rate: float,
    cgroups: int,
    host: bool,
    programs: bool,
    output: Path | None,
) -> None:
    if os.geteuid() != 0:
        click.echo("error: cgroups need root\nhint: run it with sudo", err=True)
        sys.exit(3)
    found: dict[str, Runs] = {}
    with until_signalled() as stop, counted() if programs else nullcontext():
        for victim in victims:
            runs: dict[tuple[str, str], list[Run]] = {}
            for each, arm, run in _measure(
                victim, states, arms, repeat, seconds, rate, cgroups, in_pod=not host, programs=programs, stop=stop
            ):
                runs.setdefault((each, arm), []).append(run)
                click.echo(f"{victim} {each:<5}{arm:<10}" + _row(run), err=True)
                if run.programs:
                    click.echo(table(run.programs, run.requests))
            found[victim] = runs
            if runs:
                _report(victim, runs)
    if output is not None:
        document = {
            victim: [
                {
                    "cpus": key[0],
                    "arm": key[1],
                    "seconds": [_numbers(run.quantiles) for run in each],
                    "seconds_of_all": [_numbers(run.everything) for run in each],
                    "counted": [run.counted for run in each],
                    "requests": [run.requests for run in each],
                    "stolen": [run.stolen for run in each],
                }
                for key, each in runs.items()
            ]
            for victim, runs in found.items()
        }
        output.write_text(json.dumps(document))


def _measure(
    victim: str,
    states: Sequence[str],
    arms: Sequence[str],
    repeat: int,
    seconds: float,
    rate: float,
    cgroups: int,
    *,
    in_pod: bool,
    programs: bool,
    stop: Event,
) -> Iterator[tuple[str, str, Run]]:
    """Yield CPU state, arm and run, in an order that each repetition draws anew."""
    with (
        tempfile.TemporaryDirectory(prefix="koord-bench-") as name,
        staged(0.0005, BEST_EFFORT_POD) as stage,
        _sleepers(cgroups),
    ):
        directory = Path(name)
        directory.chmod(0o755)
        server = server_of(victim, directory, rate)
        for repetition in range(repeat):
            order = [(each, arm) for each in states for arm in arms]
            random.Random(repetition).shuffle(order)
            for each, arm in order:
                if stop.is_set():
                    return
                found = _run(
                    stage, server, each, arm, seconds, repetition, in_pod=in_pod, programs=programs and arm != ARMS[0]
                )
                yield each, arm, found


def _run(
    stage: Stage, server: TimedServer, cpus: str, arm: str, seconds: float, seed: int, *, in_pod: bool, programs: bool
) -> Run:
    with ExitStack() as stack:
        stack.callback(stage.stop_programs)
        server.start(stage)
        if cpus == "full":
            stage.start_batch()
        if arm != "without":
            said = stage.start_agent(acts=arm == "acting")
            if in_pod:
                pod = ScratchCgroup(AGENT_PATH)
                stack.callback(pod.remove)
                pod.write_shares(AGENT_SHARES)
                for directory in pod.directories:
                    (directory / "cgroup.procs").write_text(str(stage.newest_pid))
            time.sleep(AGENT_SECONDS)
            said.read()
        stage.check()
        with closing(StolenTime()) as stolen:
            return _run_of(server.load(stage, SETTLE_SECONDS + seconds, seed), stolen, programs=programs)


def _run_of(answers: TimedAnswers, stolen: StolenTime, *, programs: bool) -> Run:
    """Wait for the end of the load, and take the run from its answers.

    To ask for `programs` takes a process, amid the requests: only where they are wanted.
    """
    before, settled_at = None, time.monotonic() + SETTLE_SECONDS
    while not answers.ended:
        time.sleep(LOOK_SECONDS)
        stolen.look()
        answers.read()
        if programs and before is None and time.monotonic() >= settled_at:
            before = Programs.now()
    done = Programs.now().since(before) if before else []
    at, latency = answers.columns()
    settled = at >= SETTLE_SECONDS
    late = np.where(np.isnan(latency), np.inf, latency)[settled]
    begins, looks = answers.began + at[settled], stolen.looks
    quiet = ~disturbed(looks, begins)
    return Run(quantiles(late[quiet]), quantiles(late), int(quiet.sum()), len(late), share(looks), done)


def quantiles(seconds: Floats) -> Floats:
    """Return QUANTILES of latencies; NaN where fewer than one request is beyond one."""
    ordered = np.sort(seconds)
    shares = np.array(QUANTILES)
    place = np.ceil(shares * len(ordered)).astype(np.int64) - 1
    if not len(ordered):
        return np.full(len(QUANTILES), np.nan)
    found = ordered[np.clip(place, 0, len(ordered) - 1)]
    return np.where(len(ordered) * (1 - shares) >= 1, found, np.nan)


@contextmanager
def _sleepers(count: int) -> Iterator[None]:
    """Run a process that wakes ten times a second in each of so many cgroups."""
    program = [sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(0.1)"]
    with ExitStack() as stack:
        for number in range(count):
            cgroup = ScratchCgroup(f"/kubepods/burstable/pod5eb0c2f4-0000-4000-9000-{number:012d}")
            stack.callback(cgroup.remove)
            process = cgroup.spawn(program)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def _numbers(seconds: Floats) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in seconds.tolist()]


def _row(run: Run) -> str:
    cells = "  ".join(
        f"p{100 * each:g} {value * 1e3:.3f}" for each, value in zip(QUANTILES, run.quantiles, strict=True)
    )
    return f"{cells} ms  of {run.counted} of {run.requests} requests, {100 * run.stolen:.1f} % of the CPUs stolen"


def _report(victim: str, runs: Runs) -> None:
    """Print medians over the repetitions, and ratios to the run without the agent of the same repetition."""
    click.echo(f"\n{victim}: medians in ms, in brackets over the run without the agent; goal at most {GOAL_RATIO:g}")
    for (cpus, arm), each in sorted(runs.items()):
        medians = median([run.quantiles for run in each])
        cells = [f"p{100 * share:g} {value * 1e3:7.3f}" for share, value in zip(QUANTILES, medians, strict=True)]
        free, said = runs.get((cpus, ARMS[0]), ()), ""
        if arm != ARMS[0] and free:
            ratios = np.array([run.quantiles / base.quantiles for run, base in zip(each, free, strict=False)])
            middle, low, high = ratio_intervals(ratios)
            cells = [
                f"{cell} ({times:.2f}, {least:.2f} to {most:.2f})"
                for cell, times, least, most in zip(cells, middle, low, high, strict=True)
            ]
            said = answer(ratios)
        click.echo(f"{cpus:<5}{arm:<10}  {'  '.join(cells)}  {said}")
    every = [run for each in runs.values() for run in each]
    counts = sum(run.counted for run in every), sum(run.requests for run in every)
    click.echo(f"{counts[0]} of {counts[1]} requests met no stolen time and count")


def median(values: Sequence[Floats] | Floats, axis: int = 0) -> Floats:
    """Return medians along an axis without what is absent; NaN where all is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=axis), dtype=np.float64)


def ratio_intervals(ratios: Floats) -> tuple[Floats, Floats, Floats]:
    """Return medians over repetitions (rows), and the bounds of their 95 % intervals by bootstrap (Efron, 1979)."""
    drawn = np.random.default_rng(0).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    medians = median(ratios[drawn], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = np.nanquantile(medians, (0.025, 0.975), axis=0)
    return median(ratios), low, high


def answer(ratios: Floats) -> str:
    """Say whether the goal is met at all quantiles, from ratios of each repetition (rows)."""
    fewest = int(np.isfinite(ratios).sum(axis=0).min())
    if fewest < LEAST_RATIOS:
        return f"UNDECIDED: {fewest} repetitions with enough requests at some quantile, {LEAST_RATIOS} are the least"
    middle, low, high = ratio_intervals(ratios)
    if (high <= GOAL_RATIO).all():
        return "met"
    if (low > GOAL_RATIO).any():
        return "NOT MET"
    return f"UNDECIDED, {'within' if (middle <= GOAL_RATIO).all() else 'beyond'} it by the medians"


if __name__ == "__main__":
    main()
