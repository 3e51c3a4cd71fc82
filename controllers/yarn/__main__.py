"""The `koord-yarn-copilot` command: run, plan, explain. Flags, signals and exit codes live here and nowhere else."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import click

from api.programs.heap import bound_arenas
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
from controllers.runtime.clients import connect_clients
from controllers.runtime.health import Health
from controllers.runtime.loop import HINTS, Loop, view_once
from controllers.runtime.metrics import Metrics
from controllers.runtime.view import View
from controllers.yarn.board import Board
from controllers.yarn.exchange import Exchange, ExchangeMetrics
from controllers.yarn.offering import Offering
from controllers.yarn.resource_managers import ResourceManagers, YarnError
from controllers.yarn.settings import CopilotSettings

PROGRAM = "koord-yarn-copilot"
PREFIX = "koord_yarn_copilot"
TIMES: LeaseTimes = {"duration_seconds": 10.0, "renew_deadline_seconds": 7.0, "retry_seconds": 1.0}
"""A request sent while leading ends within the three seconds between the holder's own deadline and the lease's end."""

_log = logging.getLogger("controllers.yarn")


@click.group(invoke_without_command=True, context_settings={"max_content_width": 100})
@cluster_options
@click.pass_context
def main(
    ctx: click.Context,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    server: str | None,
    verbose: bool,
) -> None:
    """Offer batch resources of nodes to NodeManagers of Hadoop YARN, and sell none of them twice.

    \b
    koord-yarn-copilot --config yarn.toml run                run; competes for a lease
    koord-yarn-copilot --config yarn.toml plan               print what would be told, and tell nothing
    koord-yarn-copilot --config yarn.toml explain worker-7   print why a NodeManager has its resource
    """
    start_log(verbose=verbose)
    ctx.obj = Chosen(PROGRAM, config, kubeconfig, context, server)
    if ctx.invoked_subcommand is None:
        ctx.invoke(run)


@main.command()
@click.option("--address", default="0.0.0.0", show_default=True, help="Where to serve HTTP.")
@click.option("--port", default=8080, show_default=True, help="Port of health and metrics.")
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="Compete for the lease first.")
@click.option("--lease", default=f"koordinator-system/{PROGRAM}", show_default=True, help="NAMESPACE/NAME.")
@click.pass_obj
def run(chosen: Chosen, address: str, port: int, leader_elect: bool, lease: str) -> None:
    """Run until a signal (the default).

    \b
    koord-yarn-copilot --config yarn.toml run --no-leader-elect --port 0
    """
    bound_arenas()
    settings = _settings(chosen)
    metrics = Metrics(PREFIX)
    board = Board()
    elector = chosen.elector(lease, identity(), TIMES, metrics.requested) if leader_elect else None
    leading: Callable[[], bool] = (lambda: elector.leading) if elector else (lambda: True)
    reader, writer, recorder = connect_clients(chosen, identity(), settings.loop, metrics, leading)
    loop = Loop(
        reader,
        writer,
        {"yarn": Offering(settings, board)},
        settings.loop,
        recorder=recorder,
        metrics=metrics,
        leading=leading,
    )
    exchanges = _exchanges(settings, board, ExchangeMetrics(metrics.registry, PREFIX), leading)
    try:
        listener = listen(Health(metrics.registry, loop.ready.is_set, loop.fault), address, port, public=True)
    except OSError as error:
        die(f"HTTP on {address}:{port}: {error}", hint="choose another --address or --port")
    _log.info("YARN clusters: %s; HTTP on port %d", ", ".join(settings.clusters) or "none", listener.port)
    for exchange in exchanges:
        exchange.start()
    run_until_signal(loop, recorder, elector, servers=(*exchanges, listener), clients=(reader, writer), hints=HINTS)


@main.command()
@click.pass_obj
def plan(chosen: Chosen) -> None:
    """Print what nodes and NodeManagers would be told at present, with reasons. Tells nothing.

    \b
    koord-yarn-copilot --config yarn.toml plan
    """
    offering, board, view, settings = _once(chosen)
    writes = offering.plan(view, time.time())
    for event in writes.warnings:
        click.echo(f"{event.regarding.name}: {event.note}", err=True)
    count = len(writes.writes)
    for write in writes.writes:
        click.echo(f"node {write.key.name}: {write.reason}")
    for cluster in settings.clusters:
        for node_id, offer in sorted(board.offers(cluster).items()):
            if offer.capability != offer.seen:
                count += 1
                click.echo(f"{cluster} {node_id}: from {offer.seen} to {offer.capability}: {offer.reason}")
    if not count:
        click.echo("nothing to tell")


@main.command()
@click.argument("node")
@click.pass_obj
def explain(chosen: Chosen, node: str) -> None:
    """Explain what the NodeManager of a node is offered.

    \b
    koord-yarn-copilot --config yarn.toml explain worker-7
    """
    offering, _, view, _ = _once(chosen)
    lines = offering.explain(view, "nodes", Key("", node), time.time())
    if not lines:
        die(f"node {node} has no NodeManager", hint="its pod needs the label app.kubernetes.io/component=node-manager")
    for line in lines:
        click.echo(line)


def _once(chosen: Chosen) -> tuple[Offering, Board, View, CopilotSettings]:
    """Return the present state of the cluster, and on the board that of YARN."""
    logging.getLogger().setLevel(logging.ERROR)
    settings = _settings(chosen)
    board = Board()
    offering = Offering(settings, board)
    for name, cluster in settings.clusters.items():
        try:
            client = ResourceManagers(name, cluster)
            board.report(name, client.nodes())
        except YarnError as error:
            board.forget(name, str(error))
    with chosen.client() as reader:
        try:
            view = view_once(reader, {"yarn": offering})["yarn"]
        except ClusterError as error:
            die(f"API server: {error}")
    return offering, board, view, settings


def _exchanges(
    settings: CopilotSettings, board: Board, metrics: ExchangeMetrics, leading: Callable[[], bool]
) -> list[Exchange]:
    made = []
    for name, cluster in settings.clusters.items():

        def observe(method: str, status: int, name: str = name) -> None:
            metrics.requests.labels(name, method, str(status)).inc()

        try:
            client = ResourceManagers(name, cluster, observe)
        except YarnError as error:
            die(str(error), code=USAGE_ERROR)
        made.append(
            Exchange(
                client,
                board,
                leading=leading,
                metrics=metrics,
                poll_seconds=settings.poll_seconds,
                overcommit_timeout_seconds=settings.sharing.overcommit_timeout_seconds,
            )
        )
    return made


def _settings(chosen: Chosen) -> CopilotSettings:
    return chosen.settings(CopilotSettings)


if __name__ == "__main__":
    main()
