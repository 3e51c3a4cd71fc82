"""The `koord-descheduler` command: run, plan, explain. Flags, signals and exit codes live here and nowhere else."""

import logging
import time
from pathlib import Path

import click
import msgspec

from api.plugin import PluginError
from api.programs.heap import bound_arenas
from api.settings import SettingsError
from cluster import ClusterError, Key
from cluster.command_line import (
    USAGE_ERROR,
    Chosen,
    LeaseTimes,
    cluster_options,
    die,
    identity,
    run_until_signal,
    start_log,
)
from cluster.serving import listen
from controllers.descheduler.configuration import BuiltProfile, DeschedulerConfiguration, build
from controllers.descheduler.cycle import Descheduler
from controllers.descheduler.metrics import DeschedulerMetrics
from controllers.descheduler.scheduler_client import SchedulerAddress, SchedulerClient
from controllers.migration.migrations import Migrations
from controllers.migration.settings import MigrationArgs
from controllers.runtime.clients import connect_clients
from controllers.runtime.health import Health
from controllers.runtime.loop import HINTS, Loop, view_once
from controllers.runtime.settings import LoopSettings
from controllers.runtime.writer import UnplacedError
from controllers.runtime.writes import Writes

PROGRAM = "koord-descheduler"
LOOP = LoopSettings(requests_per_second=50.0, burst=100, retry_limit_seconds=60.0)
TIMES: LeaseTimes = {"duration_seconds": 10.0, "renew_deadline_seconds": 7.0, "retry_seconds": 1.0}
PEM = click.Path(exists=True, dir_okay=False, path_type=Path)

_log = logging.getLogger("controllers.descheduler")


@click.group(invoke_without_command=True, context_settings={"max_content_width": 100})
@cluster_options
@click.option("--scheduler", default="http://127.0.0.1:10251", show_default=True, help="URL of koord-scheduler.")
@click.option("--scheduler-ca", type=PEM, help="Authority of the scheduler's certificate.")
@click.option("--scheduler-cert", type=PEM, help="Client certificate for the scheduler.")
@click.option("--scheduler-key", type=PEM, help="Its key.")
@click.pass_context
def main(
    ctx: click.Context,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    server: str | None,
    verbose: bool,
    scheduler: str,
    scheduler_ca: Path | None,
    scheduler_cert: Path | None,
    scheduler_key: Path | None,
) -> None:
    """Move pods that had better run elsewhere: a place first, the eviction after it.

    \b
    koord-descheduler --config d.yaml run            run; competes for a lease
    koord-descheduler --config d.yaml plan           print what would be moved, and move nothing
    koord-descheduler explain pod/shop/cart-7d9f     may this pod be moved
    koord-descheduler explain podmigrationjob/NAME   where a job stands
    """
    start_log(verbose=verbose)
    address = SchedulerAddress(scheduler, scheduler_ca, scheduler_cert, scheduler_key)
    ctx.obj = (Chosen(PROGRAM, config, kubeconfig, context, server), address)
    if ctx.invoked_subcommand is None:
        ctx.invoke(run)


@main.command()
@click.option("--address", default="0.0.0.0", show_default=True, help="Where to serve HTTP.")
@click.option("--port", default=10252, show_default=True, help="Port of health and metrics.")
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="Compete for the lease first.")
@click.option("--lease", default=f"koordinator-system/{PROGRAM}", show_default=True, help="NAMESPACE/NAME.")
@click.pass_obj
def run(chosen: tuple[Chosen, SchedulerAddress], address: str, port: int, leader_elect: bool, lease: str) -> None:
    """Run until a signal (the default).

    \b
    koord-descheduler --config d.yaml run --no-leader-elect --port 0
    """
    bound_arenas()
    cluster, scheduler = chosen
    configuration, profiles = _configuration(cluster)
    # The lease names the instance: jobs outlive the process that made them.
    instance = lease.replace("/", ".")
    descheduler = Descheduler(configuration, profiles, instance)
    metrics = DeschedulerMetrics(descheduler.limited)
    elector = cluster.elector(lease, identity(), TIMES, metrics.requested) if leader_elect else None
    leading = (lambda: elector.leading) if elector else (lambda: True)
    reader, writer, recorder = connect_clients(cluster, identity(), LOOP, metrics, leading)
    loop = Loop(
        reader,
        writer,
        {"descheduler": descheduler, "migration": migrations_of(configuration, profiles, instance)},
        LOOP,
        recorder=recorder,
        metrics=metrics,
        leading=leading,
        ask=_scheduler(scheduler).ask,
    )
    try:
        listener = listen(Health(metrics.registry, loop.ready.is_set, loop.fault), address, port, public=True)
    except OSError as error:
        die(f"HTTP on {address}:{port}: {error}", hint="choose another --address or --port")
    names = ", ".join(plugin.name for profile in profiles for plugin in profile.plugins)
    _log.info("plugins: %s; HTTP on port %d", names or "none", listener.port)
    run_until_signal(loop, recorder, elector, servers=(listener,), clients=(reader, writer), hints=HINTS)


@main.command()
@click.option("--refused", is_flag=True, help="List the pods that plugins chose and that may not be moved, too.")
@click.option("--cycles", default=1, show_default=True, help="Cycles on the present state: loads count when they last.")
@click.pass_obj
def plan(chosen: tuple[Chosen, SchedulerAddress], refused: bool, cycles: int) -> None:
    """Print what the last of some cycles would move at present, with the scheduler's answer. Writes nothing.

    \b
    koord-descheduler --config d.yaml plan --refused
    koord-descheduler --config d.yaml plan --cycles 6     as if the present load had lasted
    """
    logging.getLogger().setLevel(logging.ERROR)
    cluster, scheduler = chosen
    configuration, profiles = _configuration(cluster)
    descheduler = Descheduler(configuration, profiles, PROGRAM)
    with cluster.client() as client:
        try:
            view = view_once(client, {"descheduler": descheduler})["descheduler"]
        except ClusterError as error:
            die(f"API server: {error}")
    writes = Writes()
    for _ in range(cycles):
        writes = descheduler.plan(view, time.time())
        if writes.writes or writes.warnings:
            break
    asking = _scheduler(scheduler)
    for write in writes.writes:
        if write.question is None:
            click.echo(f"{write.key}: {write.reason}: {msgspec.json.encode(write.body).decode()}")
            continue
        try:
            place = asking.ask(write.question).placements[-1]
            answer = f"to {place.node}" if place.node else f"no node: {place.message}"
        except (UnplacedError, IndexError) as error:
            answer = f"not moved: {error}"
        click.echo(f"{write.reason}; {answer}")
    for event in writes.warnings:
        click.echo(f"{event.regarding.namespace}/{event.regarding.name}: {event.note}")
    for plugin, pod, why in descheduler.refused if refused else ():
        click.echo(f"{plugin} leaves {pod}: {why}")
    if not writes.writes and not writes.warnings:
        click.echo("nothing to move")


@main.command()
@click.argument("target", metavar="KIND/[NAMESPACE/]NAME")
@click.pass_obj
def explain(chosen: tuple[Chosen, SchedulerAddress], target: str) -> None:
    """Explain whether a pod may be moved, or where a PodMigrationJob stands.

    \b
    koord-descheduler explain pod/shop/cart-7d9f
    koord-descheduler explain podmigrationjob/cart-7d9f-0c2a
    """
    logging.getLogger().setLevel(logging.ERROR)
    kinds = {"pod": "pods", "podmigrationjob": "podmigrationjobs.scheduling.koordinator.sh"}
    kinds["pmj"] = kinds["podmigrationjob"]
    kind, _, rest = target.partition("/")
    namespace, _, name = rest.rpartition("/")
    if kind.lower() not in kinds or not name:
        die(f"{target}: expected pod/NAMESPACE/NAME or podmigrationjob/NAME", code=USAGE_ERROR)
    cluster, _ = chosen
    configuration, profiles = _configuration(cluster)
    migrations = migrations_of(configuration, profiles, PROGRAM)
    with cluster.client() as client:
        try:
            view = view_once(client, {"migration": migrations})["migration"]
        except ClusterError as error:
            die(f"API server: {error}")
    lines = migrations.explain(view, kinds[kind.lower()], Key(namespace, name), time.time())
    if not lines:
        die(f"there is no {target}")
    for line in lines:
        click.echo(line)


def migrations_of(configuration: DeschedulerConfiguration, profiles: list[BuiltProfile], identity: str) -> Migrations:
    """Return the controller of jobs; they follow the arguments of the first profile."""
    args = profiles[0].migration if profiles else MigrationArgs()
    return Migrations(args, identity, configuration.workloads)


def _configuration(chosen: Chosen) -> tuple[DeschedulerConfiguration, list[BuiltProfile]]:
    configuration = chosen.settings(DeschedulerConfiguration)
    try:
        return configuration, build(configuration, chosen.source)
    except (SettingsError, PluginError) as error:
        die(str(error), code=USAGE_ERROR)


def _scheduler(address: SchedulerAddress) -> SchedulerClient:
    try:
        return SchedulerClient(address)
    except OSError as error:
        die(f"--scheduler-ca, --scheduler-cert, --scheduler-key: {error}", code=USAGE_ERROR)


if __name__ == "__main__":
    main()
