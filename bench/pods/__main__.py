"""Benchmark of the agent on a real node, with pods of every class and the agent in cluster mode at default settings.

`pairs`: every service is under load while the burner of one pod after another runs, those of production included. It
prints the latency of every service by burner, without and with the agent, and what the agent wrote, by pod.
`protect`: the service labelled LS alone, beside best-effort work without the agent, with it observing and with it
acting, in an order of its own in each repetition.

    python -m bench.pods pairs --seconds 75
    python -m bench.pods protect --contender labelled-be --repeat 3
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import click
import numpy as np
from numpy.typing import NDArray

from bench.pods.roles import BATCH, LABELLED_BE, LS, ROLES, Role
from bench.pods.stage import PodStage, staged
from koordlet.agent.signals import until_signalled

BY_NAME = {role.name: role for role in ROLES}
SERVICES = tuple(role for role in ROLES if role.port)
SETTLE_SECONDS = 4.0
BYSTANDER = BY_NAME["guaranteed"]
"""Its burner has a quota, so that it does the same work in all runs that do not harm it."""

Floats = NDArray[np.float64]


@click.group(help=__doc__)
def main() -> None:
    if os.geteuid() != 0:
        click.echo("error: a node needs root\nhint: run it with sudo", err=True)
        sys.exit(3)


assets_option = click.option(
    "--assets",
    envvar="KUBEBUILDER_ASSETS",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the cluster's binaries.",
)

output_option = click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="Keep the agent's log and audit in this folder."
)


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="koord-pods-") as folder:
        try:
            yield Path(folder)
        finally:
            if output is not None:
                output.mkdir(parents=True, exist_ok=True)
                for kept in (*Path(folder).glob("*.log"), *Path(folder).glob("*.jsonl")):
                    shutil.copy(kept, output / kept.name)


def load(stage: PodStage, rates: dict[str, float], seconds: float, seed: int, stop: Event) -> dict[str, Floats]:
    """Load services for so long; return the latencies of each that count, in seconds, NaN for no answer."""
    records = {name: stage.start_client(BY_NAME[name], rate, seconds, seed) for name, rate in rates.items()}
    while not all(each.ended for each in records.values()) and not stop.wait(0.2):
        stage.check()
        for each in records.values():
            each.read()
    found = {}
    for name, each in records.items():
        at, latency = each.columns()
        found[name] = np.where(np.isnan(latency), np.inf, latency)[at >= SETTLE_SECONDS]
    return found


def quantile(latency: Floats, share: float) -> float:
    """Return a quantile in milliseconds; nearest rank, so that a request without an answer counts."""
    ranked = np.sort(latency)
    return float(ranked[min(int(np.ceil(share * len(ranked))) - 1, len(ranked) - 1)] * 1e3) if len(ranked) else np.nan


def print_writes(stage: PodStage) -> None:
    """Print what the agent wrote, by pod and file."""
    counts: Counter[tuple[str, ...]] = Counter()
    for line in stage.audit.read_text().splitlines() if stage.audit.exists() else ():
        entry = json.loads(line)
        pod = entry.get("name") or entry["target"]
        counts[entry.get("outcome", ""), entry.get("strategy", ""), str(pod), Path(entry["file"]).name] += 1
    click.echo("\nsettings written: outcome, strategy, pod, file, times")
    for row, times in sorted(counts.items()):
        click.echo(f"  {' '.join(row)} {times}")


@main.command(help="Every pod's burner in turn beside every service.")
@assets_option
@output_option
@click.option("--seconds", default=40.0, show_default=True, help="Of each burner, without and then with the agent.")
@click.option("--service-milliseconds", default=1.0, show_default=True, help="CPU time of a request.")
def pairs(assets: Path, output: Path | None, seconds: float, service_milliseconds: float) -> None:
    workers = os.cpu_count() or 1
    service_seconds = service_milliseconds / 1e3
    rates = {role.name: 0.03 * workers / service_seconds for role in SERVICES}
    with (
        until_signalled() as stop,
        _folder(output) as folder,
        staged(assets, folder, service_seconds=service_seconds, workers=workers) as stage,
    ):
        for acts in (False, True):
            if acts:
                stage.start_agent(acts=True)
            click.echo(
                f"\n{'with' if acts else 'without'} the agent: p50 / p99 in ms of each service, by running burner"
            )
            click.echo(f"{'':<14}" + "".join(f"{role.name:>20}" for role in SERVICES))
            for burner in (None, *ROLES):
                if stop.is_set():
                    return
                if burner is not None:
                    stage.run_burner(burner)
                found = load(stage, rates, SETTLE_SECONDS + seconds, 1, stop)
                if burner is not None:
                    stage.stop_burner(burner)
                cells = "".join(
                    f"{quantile(found[role.name], 0.5):11.2f} /{quantile(found[role.name], 0.99):7.2f}"
                    for role in SERVICES
                )
                click.echo(f"{burner.name if burner else '(none)':<14}{cells}")
        stage.stop_agent()
        print_writes(stage)


@main.command(help="The service labelled LS alone and beside best-effort work, by what the agent does.")
@assets_option
@output_option
@click.option(
    "--contender", type=click.Choice([LABELLED_BE, BATCH]), default=LABELLED_BE, show_default=True, help="The work."
)
@click.option("--repeat", default=3, show_default=True, help="Repetitions.")
@click.option("--seconds", default=30.0, show_default=True, help="Of each run, without settling.")
@click.option("--load", "share", default=0.25, show_default=True, help="Part of the machine that the requests need.")
@click.option("--service-milliseconds", default=1.0, show_default=True, help="CPU time of a request.")
def protect(
    assets: Path,
    output: Path | None,
    contender: str,
    repeat: int,
    seconds: float,
    share: float,
    service_milliseconds: float,
) -> None:
    workers = os.cpu_count() or 1
    service_seconds = service_milliseconds / 1e3
    rates = {LS: share * workers / service_seconds}
    runs: dict[str, list[tuple[float, float, float, float, float]]] = {}
    with (
        until_signalled() as stop,
        _folder(output) as folder,
        staged(assets, folder, service_seconds=service_seconds, workers=workers) as stage,
    ):
        stage.run_burner(BYSTANDER)
        for repetition in range(repeat):
            order = ["alone", "unprotected", "observing", "koord"]
            random.Random(repetition).shuffle(order)
            for arm in order:
                if stop.is_set():
                    break
                figures = _arm(stage, arm, BY_NAME[contender], rates, seconds, repetition, stop)
                runs.setdefault(arm, []).append(figures)
                p50, p99, p999, work, beside = figures
                click.echo(
                    f"{repetition + 1}/{repeat} {arm:<12} p50 {p50:6.2f} p99 {p99:7.2f} p99.9 {p999:7.2f} ms, "
                    f"work {work:6.1f}/s, bystander {beside:5.1f}/s",
                    err=True,
                )
        print_writes(stage)
    _report(contender, runs)


def _arm(
    stage: PodStage, arm: str, contender: Role, rates: dict[str, float], seconds: float, seed: int, stop: Event
) -> tuple[float, float, float, float, float]:
    """Run one arm; return p50, p99, p99.9 in milliseconds, and blocks a second of contender and bystander."""
    if arm in ("observing", "koord"):
        stage.start_agent(acts=arm == "koord")
    try:
        if arm != "alone":
            stage.run_burner(contender)
        began, work, beside = time.monotonic(), stage.blocks_done(contender), stage.blocks_done(BYSTANDER)
        found = load(stage, rates, SETTLE_SECONDS + seconds, seed + 1, stop)[LS]
        span = time.monotonic() - began
        work, beside = stage.blocks_done(contender) - work, stage.blocks_done(BYSTANDER) - beside
        return (*(quantile(found, each) for each in (0.5, 0.99, 0.999)), work / span, beside / span)
    finally:
        stage.stop_burner(contender)
        stage.stop_agent()


def _report(contender: str, runs: dict[str, list[tuple[float, float, float, float, float]]]) -> None:
    click.echo(f"\n{LS} beside {contender}: medians of {len(runs.get('alone', ()))} repetitions (least..most of p99)")
    click.echo(
        f"{'':<12}{'p50 ms':>8}{'p99 ms':>8}{'':<16}{'p99.9 ms':>9}{'p99/alone':>11}{'work':>7}{'bystander':>11}"
    )
    for arm in ("alone", "unprotected", "observing", "koord"):
        if arm not in runs or "alone" not in runs or "unprotected" not in runs:
            continue
        figures = np.array(runs[arm])
        least = min(len(runs["alone"]), len(runs["unprotected"]), len(figures))
        alone, free = np.array(runs["alone"])[:least], np.array(runs["unprotected"])[:least]
        p50, p99, p999 = np.median(figures[:, :3], axis=0)
        ratio = np.median(figures[:least, 1] / alone[:, 1])
        work = np.median(figures[:least, 3] / np.maximum(free[:, 3], 1e-9))
        beside = np.median(figures[:least, 4] / np.maximum(free[:, 4], 1e-9))
        spread = f" ({figures[:, 1].min():.1f}..{figures[:, 1].max():.1f})"
        click.echo(f"{arm:<12}{p50:8.2f}{p99:8.2f}{spread:<16}{p999:9.2f}{ratio:11.2f}{work:7.0%}{beside:11.0%}")


if __name__ == "__main__":
    main()
