"""`koord-scheduler simulate`: a trace or a generated cluster through the scheduling cycle, without an API server."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from api.programs.extras import is_installed
from api.settings import SettingsError, convert, parse
from cluster.command_line import die
from scheduler.devices.fragmentation import TaskType, WorkloadDistribution
from scheduler.profile import SchedulerSettings
from scheduler.simulation import drive, policies, report
from scheduler.simulation.day import Day, DayCurve
from scheduler.simulation.drive import Curve, Simulation, inflated, saturate
from scheduler.simulation.trace import NodeShape, PodShape, TraceError, read_nodes, read_pods
from scheduler.simulation.workloads import HOUR_SECONDS, generate_workloads, lives

T = TypeVar("T")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _drawable(value: Path | None) -> Path | None:
    """Refuse a folder for pictures before the runs, not after them, where they cannot be drawn."""
    if value is not None and not is_installed("matplotlib"):
        die("--out draws, which needs matplotlib", hint="pip install 'koord[analysis]'")
    return value


OUT = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    callback=lambda _context, _parameter, value: _drawable(value),
    help="Folder for table, CSV and plot.",
)


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
@click.option("--learn", is_flag=True, help="Gradient and look-ahead learn the mix of pods from arrivals.")
@OUT
def fragmentation(
    nodes_path: Path, pods_path: Path, names: tuple[str, ...], seeds: int, until: float, learn: bool, out: Path | None
) -> None:
    """GPUs allocated and fragmented as arrivals grow to and beyond capacity."""
    nodes, pods = load_trace(nodes_path, pods_path)
    curves = saturation_runs(nodes, pods, names or policies.POLICIES, range(seeds), until=until, learn=learn)
    click.echo(saturation_report(curves, until))
    if out is not None:
        write_saturation(curves, until, out)


@simulate.command()
@click.option("--nodes", "nodes_path", type=FILE, required=True, help="Node list (CSV).")
@click.option("--pods", "pods_path", type=FILE, required=True, help="Pod list (CSV).")
@click.option("--settings", "settings_path", type=FILE, help="Scheduler settings (TOML or YAML); default: as shipped.")
@click.option("--policy", "names", multiple=True, type=click.Choice(policies.POLICIES), help="Beside the settings.")
def replay(nodes_path: Path, pods_path: Path, settings_path: Path | None, names: tuple[str, ...]) -> None:
    """A trace with its own times of arrival and departure: packing, fragmentation, spread, decisions per second."""
    nodes, pods = load_trace(nodes_path, pods_path)
    workload = workload_of(pods, nodes)
    runs = {"settings": _settings(settings_path)} | {name: policies.gpu_policy(name, pods) for name in names}
    curves = []
    for name, settings in runs.items():
        try:
            simulation = Simulation(settings, nodes, source=str(settings_path) if name == "settings" else name)
        except SettingsError as error:
            raise click.UsageError(str(error)) from error
        started = time.perf_counter()
        curve = drive.replay(simulation, pods, workload, policy=name)
        rate = curve.decisions / (time.perf_counter() - started)
        click.echo(f"{name}: {curve.decisions} decisions, {rate:.0f}/s", err=True)
        curves.append(curve)
    click.echo(report.replay_table(curves))


def _settings(path: Path | None) -> SchedulerSettings:
    if path is None:
        return SchedulerSettings()
    try:
        return convert(parse(path.read_text(encoding="utf-8"), str(path)), SchedulerSettings, str(path))
    except (SettingsError, UnicodeDecodeError) as error:
        raise click.UsageError(str(error)) from error


@simulate.command()
@click.option("--nodes", "count", default=100, show_default=True, help="Nodes of 32 CPUs and 128 GiB.")
@click.option("--hours", default=24.0, show_default=True)
@click.option("--requested", default=0.7, show_default=True, help="Share of the CPU that pods request.")
@click.option("--seeds", default=3, show_default=True, help="Days, each with its own workloads.")
@OUT
def day(count: int, hours: float, requested: float, seeds: int, out: Path | None) -> None:
    """A generated day with reports of real load: spread of load and predicted lost seconds, by policy."""
    curves = day_runs(count, hours, requested, range(seeds))
    click.echo(report.day_table(curves))
    if out is not None:
        from scheduler.simulation.plots import day_plot

        out.mkdir(parents=True, exist_ok=True)
        (out / "day.md").write_text(report.day_table(curves) + "\n", encoding="utf-8")
        (out / "day.csv").write_text(report.day_csv(curves), encoding="utf-8")
        day_plot(curves, out / "day.svg")


def day_runs(count: int, hours: float, requested: float, seeds: Iterable[int]) -> list[DayCurve]:
    """One run per policy and seed; progress goes to standard error."""
    nodes = [NodeShape(f"node-{number}", 32_000, 128 << 30) for number in range(count)]
    curves = []
    for seed in seeds:
        workloads = generate_workloads(nodes, seed, requested=requested)
        births = lives(workloads, hours * HOUR_SECONDS, seed)
        for name in policies.DAY_POLICIES:
            world = Day(policies.day_policy(name, seed=seed), nodes, workloads)
            curves.append(world.run(births, hours * HOUR_SECONDS, policy=name, seed=seed))
            click.echo(f"seed {seed} {name}: {curves[-1].decisions} placements", err=True)
    return curves


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


def workload_of(pods: Sequence[PodShape], nodes: Sequence[NodeShape]) -> WorkloadDistribution:
    """The mix of these pods, compiled for the GPU models of these nodes."""
    kinds = [
        TaskType(kind["cpu_millicores"], kind["gpus"], kind["gpu_percent"], kind["weight"], frozenset(kind["models"]))
        for kind in policies.mix_of(pods)
    ]
    return WorkloadDistribution(kinds, ["", *dict.fromkeys(node.model for node in nodes if node.model)])


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
