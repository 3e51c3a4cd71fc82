"""Benchmark of the agent's presence: what it costs a sub-millisecond service on the same node.

A service in a Burstable pod of the kubelet's layout answers at a fixed rate, on idle CPUs and beside a pod of the
BestEffort class that fills them, without the agent, with it observing and with it acting. Each repetition runs the arms
in an order of its own; the agent is a pod with the chart's request, or lives in the root cgroup with --host.

    python -m bench.presence --repeat 5
    python -m bench.presence --victim postgres --cpus full --host
"""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import click
import numpy as np
from numpy.typing import NDArray

from bench.presence.servers import SERVERS, server_of
from bench.protect.measurement import Answers
from bench.protect.servers import Server
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

Floats = NDArray[np.float64]
Runs = Mapping[tuple[str, str], Sequence[Floats]]


@click.command(help=__doc__)
@click.option("--victim", "victims", multiple=True, type=click.Choice(SERVERS), default=SERVERS, show_default=True)
@click.option("--cpus", "states", multiple=True, type=click.Choice(CPUS), default=CPUS, show_default=True)
@click.option("--arm", "arms", multiple=True, type=click.Choice(ARMS), default=ARMS, show_default=True)
@click.option("--repeat", default=3, show_default=True, help="Repetitions.")
@click.option("--seconds", default=20.0, show_default=True, help="Of each run, without settling.")
@click.option("--rate", default=1000.0, show_default=True, help="Requests a second.")
@click.option("--cgroups", default=50, show_default=True, help="Other cgroups on the node, with a sleeper in each.")
@click.option("--host", is_flag=True, help="The agent in the root cgroup instead of a pod.")
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
    output: Path | None,
) -> None:
    if os.geteuid() != 0:
        click.echo("error: cgroups need root\nhint: run it with sudo", err=True)
        sys.exit(3)
    found: dict[str, Runs] = {}
    with until_signalled() as stop:
        for victim in victims:
            runs: dict[tuple[str, str], list[Floats]] = {}
            for each, arm, quantiles in _measure(
                victim, states, arms, repeat, seconds, rate, cgroups, in_pod=not host, stop=stop
            ):
                runs.setdefault((each, arm), []).append(quantiles)
                click.echo(f"{victim} {each:<5}{arm:<10}" + _row(quantiles), err=True)
            found[victim] = runs
            if runs:
                _report(victim, runs)
    if output is not None:
        document = {
            victim: [
                {"cpus": key[0], "arm": key[1], "seconds": [run.tolist() for run in each]} for key, each in runs.items()
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
    stop: Event,
) -> Iterator[tuple[str, str, Floats]]:
    """Yield CPU state, arm and quantiles of every run, in an order that each repetition draws anew."""
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
                yield each, arm, _run(stage, server, each, arm, seconds, repetition, in_pod=in_pod)


def _run(stage: Stage, server: Server, cpus: str, arm: str, seconds: float, seed: int, *, in_pod: bool) -> Floats:
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
        return _quantiles(server.load(stage, SETTLE_SECONDS + seconds, seed))


def _quantiles(answers: Answers) -> Floats:
    while not answers.ended:
        time.sleep(0.1)
        answers.read()
    at, latency = answers.columns()
    counted = np.sort(np.where(np.isnan(latency), np.inf, latency)[at >= SETTLE_SECONDS])
    place = np.ceil(np.array(QUANTILES) * len(counted)).astype(np.int64) - 1
    return np.asarray(counted[np.clip(place, 0, len(counted) - 1)], dtype=np.float64)


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


def _row(quantiles: Floats) -> str:
    return (
        "  ".join(f"p{100 * share:g} {value * 1e3:.3f}" for share, value in zip(QUANTILES, quantiles, strict=True))
        + " ms"
    )


def _report(victim: str, runs: Runs) -> None:
    """Print medians over the repetitions, and the median ratio to the run without the agent of the same repetition."""
    click.echo(f"\n{victim}: medians in ms, in brackets over the run without the agent; goal at most {GOAL_RATIO:g}")
    for (cpus, arm), each in sorted(runs.items()):
        figures = np.array(each)
        free = np.array(runs.get((cpus, ARMS[0]), each))[: len(figures)]
        ratio = np.median(figures[: len(free)] / free, axis=0)
        cells = "".join(
            f"  p{100 * share:g} {value * 1e3:7.3f} ({times:.2f})"
            for share, value, times in zip(QUANTILES, np.median(figures, axis=0), ratio, strict=True)
        )
        click.echo(f"{cpus:<5}{arm:<10}{cells}  {'met' if (ratio <= GOAL_RATIO).all() else 'NOT MET'}")


if __name__ == "__main__":
    main()
