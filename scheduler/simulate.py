"""`koord-scheduler simulate`: a trace or a generated cluster through the scheduling cycle, without an API server."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from scheduler.devices.fragmentation import TaskType, Workload
from scheduler.simulation import policies, report
from scheduler.simulation.drive import Curve, Simulation, inflated, saturate
from scheduler.simulation.trace import NodeShape, PodShape, TraceError, read_nodes, read_pods

T = TypeVar("T")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def simulate() -> None:
    """Place a trace or a generated day without a cluster, and report what came of it."""


@simulate.command()
@click.option(
    "--nodes", "nodes_path", type=FILE, required=True, help="Node list (CSV: sn,cpu_milli,memory_mib,gpu,model)."
)
@click.option(
    "--pods", "pods_path", type=FILE, required=True, help="Pod list (CSV: name,cpu_milli,memory_mib,num_gpu,...)."
)
@click.option("--policy", "names", multiple=True, type=click.Choice(policies.POLICIES), help="Default: all.")
@click.option("--seeds", default=3, show_default=True, help="Runs per policy, each with its own order of arrival.")
@click.option("--until", default=1.3, show_default=True, help="Stop when this share of GPU capacity has arrived.")
@click.option("--learn", is_flag=True, help="The gradient learns the mix of pods from arrivals instead of being told.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for table, CSV and plot.")
def fragmentation(
    nodes_path: Path, pods_path: Path, names: tuple[str, ...], seeds: int, until: float, learn: bool, out: Path | None
) -> None:
    """GPUs allocated and fragmented as arrivals grow to and beyond capacity."""
    nodes, pods = load_trace(nodes_path, pods_path)
    curves = saturation_runs(nodes, pods, names or policies.POLICIES, range(seeds), until=until, learn=learn)
    click.echo(saturation_report(curves, until))
    if out is not None:
        write_saturation(curves, until, out)


def load_trace(nodes_path: Path, pods_path: Path) -> tuple[list[NodeShape], list[PodShape]]:
    """Nodes and pods of two CSV files. Raises click.UsageError (exit code 2) for files that are no such trace."""
    return _read(nodes_path, read_nodes), _read(pods_path, read_pods)


def _read(path: Path, reader: Callable[[Iterable[str], str], list[T]]) -> list[T]:
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            shapes = reader(lines, str(path))
    except (TraceError, UnicodeDecodeError) as error:
        raise click.UsageError(str(error)) from error
    if not shapes:
        raise click.UsageError(f"{path}: no rows")
    return shapes


def workload_of(pods: Sequence[PodShape], nodes: Sequence[NodeShape]) -> Workload:
    """The mix of these pods, compiled for the GPU models of these nodes."""
    kinds = [
        TaskType(kind["cpu_millicores"], kind["gpus"], kind["gpu_percent"], kind["weight"], frozenset(kind["models"]))
        for kind in policies.mix_of(pods)
    ]
    return Workload(kinds, ["", *dict.fromkeys(node.model for node in nodes if node.model)])


def saturation_runs(
    nodes: Sequence[NodeShape],
    pods: Sequence[PodShape],
    names: Sequence[str],
    seeds: Iterable[int],
    *,
    until: float,
    learn: bool = False,
) -> list[Curve]:
    """One run per policy and seed; progress goes to standard error."""
    workload = workload_of(pods, nodes)
    target = until * 100 * sum(node.gpus for node in nodes)
    curves = []
    for seed in seeds:
        for name in names:
            started = time.perf_counter()
            simulation = Simulation(policies.gpu_policy(name, pods, seed=seed, learn=learn), nodes)
            curve = saturate(simulation, inflated(pods, target, seed), workload, policy=name, seed=seed)
            rate = curve.decisions / (time.perf_counter() - started)
            click.echo(f"seed {seed} {name}: {curve.last.allocated:.2%}, {rate:.0f} decisions/s", err=True)
            curves.append(curve)
    return curves


def saturation_report(curves: Sequence[Curve], until: float) -> str:
    """Both tables."""
    steps = [step / 10 for step in range(5, int(until * 10) + 1)]
    return f"{report.final_table(curves)}\n\n{report.saturation_table(curves, steps)}"


def write_saturation(curves: Sequence[Curve], until: float, out: Path) -> None:
    """Table, CSV and plot as files in `out`."""
    from scheduler.simulation.plots import saturation_plot

    out.mkdir(parents=True, exist_ok=True)
    (out / "fragmentation.md").write_text(saturation_report(curves, until) + "\n", encoding="utf-8")
    (out / "fragmentation.csv").write_text(report.saturation_csv(curves), encoding="utf-8")
    saturation_plot(curves, out / "fragmentation.svg")
