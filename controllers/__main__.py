"""The `koord-manager` command: run, plan, explain. Flags, signals and exit codes live here and nowhere else."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

import controllers.plans
from api.crds import DEFINITIONS
from api.plugin import PluginError, discover
from api.programs.heap import bound_arenas
from api.settings import SettingsError
from cluster import ClientSettings, ClusterError, Key
from cluster.command_line import (
    USAGE_ERROR,
    Chosen,
    LeaseTimes,
    Stops,
    cluster_options,
    die,
    identity,
    run_until_signal,
    start_log,
)
from cluster.serving import listen
from controllers.analysis.command import analyze, compact
from controllers.capacity.cluster_use import ClusterUseTable
from controllers.cluster_page.serve import SHOWN, serve_page
from controllers.forecast.command import backtest
from controllers.models.command import train_models
from controllers.profiles.command import profile
from controllers.recommend.command import recommend
from controllers.recommend.observed import WorkloadUsage
from controllers.runtime.clients import connect_clients
from controllers.runtime.cluster_use_metrics import ClusterUseMetrics
from controllers.runtime.controller import AnyController, Controller
from controllers.runtime.health import Health
from controllers.runtime.loop import HINTS, Loop, look_for_cycles_less, view_once
from controllers.runtime.metrics import Metrics
from controllers.runtime.settings import ManagerSettings, build
from controllers.runtime.view import AnyProjection
from controllers.runtime.writes import Write

if TYPE_CHECKING:
    from controllers.external_metrics.serve import ExternalMetrics
    from controllers.webhooks.serve import Webhooks

PROGRAM = "koord-manager"
GROUP = "koord.controllers"
"""Entry points of controllers outside this project."""

TIMES: LeaseTimes = {"duration_seconds": 10.0, "renew_deadline_seconds": 7.0, "retry_seconds": 1.0}
"""A request sent while leading ends within the three seconds between the holder's own deadline and the lease's end."""

_log = logging.getLogger("controllers")


@dataclass(frozen=True, slots=True)
class ManagerChoice:
    """Options that every command has."""

    cluster: Chosen
    only: tuple[str, ...]


@click.group(invoke_without_command=True, context_settings={"max_content_width": 100})
@cluster_options
@click.option("--only", multiple=True, metavar="CONTROLLER", help="Only this controller; may be repeated.")
@click.pass_context
def main(
    ctx: click.Context,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    server: str | None,
    verbose: bool,
    only: tuple[str, ...],
) -> None:
    """Turn what nodes report into capacity, strategies, taints and quotas.

    \b
    koord-manager                            run in a cluster, or by the current kubeconfig
    koord-manager --config m.toml run        run with settings
    koord-manager plan                       print what would be written, and write nothing
    koord-manager explain node/worker-7      print why the node has its batch and mid resources
    """
    start_log(verbose=verbose)
    ctx.obj = ManagerChoice(Chosen(PROGRAM, config, kubeconfig, context, server), only)
    if ctx.invoked_subcommand is None:
        ctx.invoke(run)


@main.command()
@click.option("--address", default="0.0.0.0", show_default=True, help="Where to serve HTTP.")
@click.option("--port", default=8080, show_default=True, help="Port of health and metrics.")
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="Compete for the lease first.")
@click.option("--lease", default=f"koordinator-system/{PROGRAM}", show_default=True, help="NAMESPACE/NAME.")
@click.pass_obj
def run(chosen: ManagerChoice, address: str, port: int, leader_elect: bool, lease: str) -> None:
    """Run until a signal (the default).

    \b
    koord-manager run --no-leader-elect --port 0
    koord-manager --server http://127.0.0.1:8001 --only node_metric run
    """
    bound_arenas()
    look_for_cycles_less()
    settings = chosen.cluster.settings(ManagerSettings)
    built = _controllers(settings, chosen)
    name = identity()
    metrics = Metrics()
    loop_settings = settings.loop
    elector = chosen.cluster.elector(lease, name, TIMES, metrics.requested) if leader_elect else None
    leading = (lambda: elector.leading) if elector else (lambda: True)
    reader, writer, recorder = connect_clients(chosen.cluster, name, loop_settings, metrics, leading)
    tables: list[type[AnyProjection]] = [WorkloadUsage] if settings.external_metrics.enabled else []
    if "overcommit" in built:  # it watches the same kinds
        tables.append(ClusterUseTable)
    loop = Loop(
        reader,
        writer,
        built,
        loop_settings,
        recorder=recorder,
        metrics=metrics,
        leading=leading,
        shown=SHOWN if settings.page.enabled else (),
        tables=tables,
    )
    if ClusterUseTable in tables:
        metrics.registry.register(ClusterUseMetrics(loop.table(ClusterUseTable)))
    health = Health(metrics.registry, loop.ready.is_set, loop.fault)
    try:
        server = listen(health, address, port, public=True)
    except OSError as error:
        die(f"HTTP on {address}:{port}: {error}", hint="choose another --address or --port")
    _log.info("controllers: %s; HTTP on port %d", ", ".join(built) or "none", server.port)
    webhooks = _webhooks(settings, chosen, metrics)
    if webhooks:
        webhooks.start()
    external = _external_metrics(settings, chosen, metrics, loop)
    if external:
        external.start()
    page = serve_page(settings.page, loop.look, leading)
    servers: tuple[Stops, ...] = tuple(each for each in (server, webhooks, external, page) if each is not None)
    run_until_signal(loop, recorder, elector, servers=servers, clients=(reader, writer), hints=HINTS)


@main.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form.")
@click.pass_obj
def plan(chosen: ManagerChoice, output: str) -> None:
    """Print what would be written at present, with reasons. Writes nothing.

    \b
    koord-manager plan
    koord-manager --only overcommit plan -o json
    """
    logging.getLogger().setLevel(logging.ERROR)
    settings = chosen.cluster.settings(ManagerSettings)
    built = _controllers(settings, chosen)
    now = time.time()
    total = 0
    with chosen.cluster.client() as client:
        try:
            views = view_once(client, built)
        except ClusterError as error:
            die(f"API server: {error}")
    for name, controller in built.items():
        writes = controller.plan(views[name], now)
        for write in writes.writes:
            total += 1
            click.echo(_as_json(name, write) if output == "json" else _as_text(name, write))
        for event in writes.warnings:
            line = f"{name}: warning about {event.regarding.kind} {event.regarding.name}: {event.note}"
            click.echo(line, err=True)
    if output == "text":
        click.echo(f"{total} writes" if total else "nothing to write")


@main.command()
@click.argument("target", metavar="KIND/[NAMESPACE/]NAME")
@click.pass_obj
def explain(chosen: ManagerChoice, target: str) -> None:
    """Explain the values that the manager gives an object: inputs with their times, formula, limits.

    \b
    koord-manager explain node/worker-7
    koord-manager explain nodeslo/worker-7
    """
    logging.getLogger().setLevel(logging.ERROR)
    kind, _, rest = target.partition("/")
    namespace, _, name = rest.rpartition("/")
    if not name:
        die(f"{target}: expected KIND/NAME or KIND/NAMESPACE/NAME", code=USAGE_ERROR)
    built = _controllers(chosen.cluster.settings(ManagerSettings), chosen)
    with chosen.cluster.client() as client:
        try:
            views = view_once(client, built)
        except ClusterError as error:
            die(f"API server: {error}")
    found = False
    for controller_name, controller in built.items():
        lines = controller.explain(views[controller_name], plural(kind), Key(namespace, name), time.time())
        if lines:
            found = True
            click.echo(f"{controller_name}:")
            for line in lines:
                click.echo(f"  {line}")
    if not found:
        die(f"no controller gives {target} a value", hint="koord-manager explain node/NAME; check that it exists")


for each in (recommend, analyze, compact, backtest, profile, train_models):
    main.add_command(each)


def plural(kind: str) -> str:
    """Return the name that controllers know a kind by: `plural`, or `plural.group` of a custom one."""
    lowered = kind.lower()
    for definition in DEFINITIONS:
        if lowered in (definition.kind.lower(), definition.plural, definition.name, *definition.short_names):
            return definition.name
    return lowered if lowered.endswith("s") else f"{lowered}s"


def _as_text(controller: str, write: Write) -> str:
    part = f" ({write.subresource})" if write.subresource else ""
    body = "" if write.body is None else f"\n    {msgspec.json.encode(write.body).decode()}"
    return f"{controller}: {write.verb.value} {write.resource.kind} {write.key}{part}: {write.reason}{body}"


def _as_json(controller: str, write: Write) -> str:
    document = {
        "controller": controller,
        "verb": write.verb.value,
        "kind": write.resource.kind,
        "key": str(write.key),
        "subresource": write.subresource,
        "reason": write.reason,
        "body": write.body,
    }
    return msgspec.json.encode(document).decode()


def _controllers(settings: ManagerSettings, chosen: ManagerChoice) -> dict[str, AnyController]:
    source = chosen.cluster.source
    try:
        found = discover(controllers.plans, Controller, GROUP)  # type: ignore[type-abstract]
        built = build(settings, found, source)
    except (SettingsError, PluginError) as error:
        die(str(error), code=USAGE_ERROR)
    unknown = [name for name in chosen.only if name not in found]
    if unknown:
        die(f"no controller {unknown[0]}", hint=f"there are {', '.join(sorted(found))}", code=USAGE_ERROR)
    return {name: each for name, each in built.items() if not chosen.only or name in chosen.only}


def _webhooks(settings: ManagerSettings, chosen: ManagerChoice, metrics: Metrics) -> "Webhooks | None":
    """Return admission where the settings ask for it; every replica serves, whether it leads or not."""
    if not settings.webhook.enabled:
        return None
    from controllers.webhooks.serve import Webhooks

    # A review must not wait behind a controller's requests, nor longer than the API server waits for it.
    once = ClientSettings(timeout_seconds=3.0, attempts=2, user_agent=PROGRAM)
    try:
        return Webhooks(chosen.cluster.client(once, metrics.requested), settings.webhook, metrics.registry)
    except OSError as error:
        where = f"{settings.webhook.address}:{settings.webhook.port}"
        die(f"webhooks: {where}: {error}", hint="choose another address or port in table [webhook]")


def _external_metrics(
    settings: ManagerSettings, chosen: ManagerChoice, metrics: Metrics, loop: Loop
) -> "ExternalMetrics | None":
    """Return the external metrics where the settings ask for them; every replica learns and serves."""
    if not settings.external_metrics.enabled:
        return None
    from controllers.external_metrics.serve import ExternalMetrics

    once = ClientSettings(timeout_seconds=10.0, attempts=2, user_agent=PROGRAM)
    client = chosen.cluster.client(once, metrics.requested)
    try:
        return ExternalMetrics(client, settings.external_metrics, loop.table(WorkloadUsage))
    except OSError as error:
        where = f"{settings.external_metrics.address}:{settings.external_metrics.port}"
        die(f"external metrics: {where}: {error}", hint="choose another address or port in table [external_metrics]")


if __name__ == "__main__":
    main()
