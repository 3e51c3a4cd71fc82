"""Benchmark of ways to protect a service: its latency, and the best-effort work beside it.

Requests arrive in an open loop (Poisson) at 30 % of the machine and their latency counts from the time they should have
started. Every repetition runs all columns in an order of its own; figures are medians over the repetitions, with the
least and the most beside them. Best-effort work is counted in blocks compressed (beside nginx and postgres in CPU
time), relative to the unprotected run of the same repetition.

    python -m bench.protect --victim cpu-10ms --victim cpu-1ms --repeat 5
    python -m bench.protect --victim cpu-1ms --layout best-effort-pod
    python -m bench.protect --victim disk --scheduler bfq
    python -m bench.protect --victim nginx --victim postgres --beside tar-gzip
"""

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import click
import numpy as np

from bench.detect.disk import mounted_disk
from bench.protect import cpu, disk, memory, servers
from bench.protect.columns import Column, columns, disk_columns
from koordlet.agent.signals import until_signalled
from koordlet.demo.layout import LAYOUTS, SIBLINGS, Layout
from koordlet.demo.measure import DemoPhase
from koordlet.demo.stage import staged

VICTIMS = {"cpu-10ms": 0.010, "cpu-1ms": 0.001, "disk": 0.0, "memory": 0.0, "nginx": 0.0, "postgres": 0.0}
"""CPU time of a request, where it is given."""
BY_DEFAULT = ("cpu-10ms", "cpu-1ms", "disk", "memory")
DISK_LIMIT_BYTES_PER_SECOND = 8 << 20
GOALS = {"disk": (1.5, 0.2), "memory": (1.5, 0.9)}
"""Most of the 99th percentile over that alone, and least of the best-effort work, by victim."""
GOAL_OF_OTHERS = (1.05, 0.90)

Measured = Callable[[Column, int], DemoPhase]
Runs = Mapping[str, Sequence[DemoPhase]]


@click.command(help=__doc__)
@click.option(
    "--victim", "victims", multiple=True, type=click.Choice(list(VICTIMS)), default=BY_DEFAULT, show_default=True
)
@click.option("--repeat", default=5, show_default=True, help="Repetitions.")
@click.option("--seconds", default=30.0, show_default=True, help="Of each run, without settling.")
@click.option("--load", default=0.3, show_default=True, help="Part of the machine that the requests need.")
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    default=SIBLINGS.name,
    show_default=True,
    help="Of the cgroups: two siblings, two Burstable pods, or a Burstable pod beside one of the BestEffort class.",
)
@click.option(
    "--beside",
    type=click.Choice(servers.BESIDE),
    default=servers.BESIDE[0],
    show_default=True,
    help="Best-effort work beside nginx and postgres.",
)
@click.option(
    "--scheduler",
    default="",
    help="Scheduler of the disk in place of the kernel's choice, and values of its files: bfq,strict_guarantees=1.",
)
@click.option("--only", multiple=True, help="Columns to run besides 'alone' and 'unprotected', by name.")
@click.option(
    "--logs", type=click.Path(file_okay=False, path_type=Path), help="Keep the agent's log and audit in this folder."
)
@click.option(
    "--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write every run's figures here."
)
def main(
    victims: tuple[str, ...],
    repeat: int,
    seconds: float,
    load: float,
    layout: str,
    beside: str,
    scheduler: str,
    only: tuple[str, ...],
    logs: Path | None,
    output: Path | None,
) -> None:
    if os.geteuid() != 0:
        click.echo("error: cgroups need root\nhint: run it with sudo", err=True)
        sys.exit(3)
    found: dict[str, Runs] = {}
    with until_signalled() as stop:
        for victim in victims:
            found[victim] = run(
                victim,
                repeat=repeat,
                seconds=seconds,
                load=load,
                layout=LAYOUTS[layout],
                beside=beside,
                scheduler=scheduler,
                only=only,
                logs=logs,
                stop=stop,
            )
            report(victim, found[victim])
            if stop.is_set():
                break
    if output:
        output.write_text(json.dumps({victim: _plain(runs) for victim, runs in found.items()}))
    sys.exit(130 if stop.is_set() else 0)


def run(
    victim: str,
    *,
    repeat: int,
    seconds: float,
    load: float,
    layout: Layout,
    beside: str,
    scheduler: str,
    only: tuple[str, ...],
    logs: Path | None,
    stop: Event,
) -> Runs:
    """Run all repetitions of one victim; an interrupted repetition is dropped."""
    runs: dict[str, list[DemoPhase]] = {}
    runner = _runner(
        victim, layout, seconds=seconds, load=load, beside=beside, scheduler=scheduler, logs=logs, stop=stop
    )
    with runner as (offered, measured):
        for repetition in range(repeat):
            order = [each for each in offered if not only or each.name in (*only, "alone", "unprotected")]
            random.Random(repetition).shuffle(order)
            done: dict[str, DemoPhase] = {}
            for column in order:
                phase = measured(column, repetition + 1)
                if stop.is_set():
                    return runs
                done[column.name] = phase
                p99 = phase.quantiles[1] * 1e3
                click.echo(f"{victim} {repetition + 1}/{repeat} {column.name:<15} p99 {p99:8.1f} ms", err=True)
            for name, phase in done.items():
                runs.setdefault(name, []).append(phase)
    return runs


@contextmanager
def _keeping(directory: Path, logs: Path | None, victim: str) -> Iterator[None]:
    """Copy the agent's log and audit to a folder at the end."""
    try:
        yield
    finally:
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            for kept in (*directory.glob("*.log"), *directory.glob("*.jsonl")):
                shutil.copy(kept, logs / f"{victim}-{kept.name}")


@contextmanager
def _runner(
    victim: str,
    layout: Layout,
    *,
    seconds: float,
    load: float,
    beside: str,
    scheduler: str,
    logs: Path | None,
    stop: Event,
) -> Iterator[tuple[list[Column], Measured]]:
    """Return the columns of a victim, and the function that runs one of them with a seed."""
    service_seconds = VICTIMS[victim]
    with staged(service_seconds, layout) as stage, _keeping(stage.directory, logs, victim):
        if victim == "memory":
            memory.lay_out(stage)
            yield (
                memory.memory_columns(),
                lambda column, seed: memory.measure(stage, column, seconds=seconds, seed=seed, stop=stop),
            )
            return
        if victim in ("nginx", "postgres"):
            with servers.server_of(victim, load) as server:
                yield (
                    columns(load),
                    lambda column, seed: servers.measure(
                        stage, column, server, beside, seconds=seconds, seed=seed, stop=stop
                    ),
                )
            return
        if victim != "disk":
            rate = load * (os.cpu_count() or 1) / service_seconds
            yield (
                columns(load),
                lambda column, seed: cpu.measure(stage, column, rate=rate, seconds=seconds, seed=seed, stop=stop),
            )
            return
        with (
            mounted_disk(stage.directory, str(max(os.sched_getaffinity(0)))) as made,
            disk.scheduler(made, scheduler),
        ):
            disk.lay_out(made)
            yield (
                disk_columns(disk.disk_number(made), DISK_LIMIT_BYTES_PER_SECOND),
                lambda column, seed: disk.measure(stage, column, made, seconds=seconds, seed=seed, stop=stop),
            )


def report(victim: str, runs: Runs) -> None:
    """Return the table of one victim, with the goals met and missed."""
    if not runs:
        return
    click.echo(f"\n{victim}: medians of {len(runs['alone'])} repetitions (least..most)")
    click.echo(f"{'':<16}{'p50 ms':>9}{'p99 ms':>9}{'':<18}{'p99.9 ms':>9}{'p99/alone':>11}{'best effort':>13}")
    free = np.array([phase.blocks_per_second for phase in runs["unprotected"]])
    alone = np.array([phase.quantiles[1] for phase in runs["alone"]])
    for column in columns(0.3):
        if column.name not in runs:
            continue
        figures = np.array([phase.quantiles for phase in runs[column.name]]) * 1e3
        work = np.array([phase.blocks_per_second for phase in runs[column.name]]) / free
        ratios = np.array([phase.quantiles[1] for phase in runs[column.name]]) / alone
        p50, p99, p999 = np.median(figures, axis=0)
        spread = f"({figures[:, 1].min():.1f}..{figures[:, 1].max():.1f})"
        done = f"{np.median(work):.0%}" if column.with_batch else "-"
        click.echo(f"{column.name:<16}{p50:9.2f}{p99:9.2f} {spread:<17}{p999:9.2f}{np.median(ratios):11.2f}{done:>13}")
        if column.name == "koord":
            most, least = GOALS.get(victim, GOAL_OF_OTHERS)
            met = np.median(ratios) <= most and np.median(work) >= least
            goal = f"p99 <= {most} x alone and work >= {least:.0%}"
            click.echo(f"{'':<16}goal {goal}: {'met' if met else 'not met'}")


def _plain(runs: Runs) -> dict[str, list[dict[str, float]]]:
    return {
        name: [
            dict(zip(("p50", "p99", "p999"), phase.quantiles.tolist(), strict=True))
            | {"blocks_per_second": phase.blocks_per_second, "requests": len(phase.latency)}
            for phase in phases
        ]
        for name, phases in runs.items()
    }


if __name__ == "__main__":
    main()
