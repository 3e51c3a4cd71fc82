"""The `koord-scheduler` command: run, why, simulate. Flags, signals and exit codes live here and nowhere else."""

import logging
import time
from dataclasses import replace
from pathlib import Path

import click

from api.kube.times import duration_seconds
from api.programs.heap import bound_arenas
from api.settings import SettingsError
from cluster import ClientSettings, ClusterError, EventRecorder, Key, RecorderSettings
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
from cluster.serving import Bounds, ExposedError, Listener, TlsFiles, listen
from scheduler.configuration.document import KubeConfiguration, LeaderElection, find, read
from scheduler.engine import Engine
from scheduler.explain.why import explain, find_pod, load
from scheduler.loop import ForbiddenKindError, Loop
from scheduler.metrics import Metrics
from scheduler.profile import SchedulerSettings
from scheduler.serving.http_api import HealthApi, HttpApi, listener_bounds

PROGRAM = "koord-scheduler"
LEASE = "koordinator-system/koord-scheduler"
QPS = 1000.0
LEAST_SLACK_SECONDS = 1.0
"""Time for one write that is always given, however close the times of an election are."""
PEM = click.Path(exists=True, dir_okay=False, path_type=Path)

_log = logging.getLogger("scheduler")


class _Commands(click.Group):
    """Imports the simulator, with all that plots, only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "simulate"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "simulate":
            from scheduler.simulation.command import simulate

            return simulate
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"max_content_width": 100})
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
    """Place pods whose schedulerName is koord-scheduler, by load, interference, gangs, quotas, topology and devices.

    \b
    koord-scheduler                          run in a cluster, or by the current kubeconfig
    koord-scheduler --config s.toml run      run with settings, or with a KubeSchedulerConfiguration
    koord-scheduler why shop/cart-7d9f       explain why a pod is pending
    koord-scheduler simulate --help          place a trace without a cluster
    """
    start_log(verbose=verbose)
    ctx.obj = Chosen(PROGRAM, config, kubeconfig, context, server)
    if ctx.invoked_subcommand is None:
        ctx.invoke(run)


@main.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to serve HTTP; others need TLS.")
@click.option("--port", default=10251, show_default=True, help="Port of metrics, state, switches and extender.")
@click.option("--tls-cert", type=PEM, help="Certificate of the server; with it, clients need one of --client-ca.")
@click.option("--tls-key", type=PEM, help="Its key.")
@click.option("--client-ca", type=PEM, help="Authority that signs the certificates of clients.")
@click.option(
    "--bind-client-name",
    "binders",
    multiple=True,
    metavar="NAME",
    help="Common name of a client certificate that may use the extender and the debug flags; repeatable.",
)
@click.option("--health-address", default="", help="HOST:PORT of health and metrics alone, in plain HTTP, for probes.")
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Compete for the lease first; on unless the file says no."
)
@click.option("--lease", metavar="NAMESPACE/NAME", help=f"The lease. [default: the file's, or {LEASE}]")
@click.option("--qps", type=float, help=f"Requests per second to the API server. [default: the file's, or {QPS:g}]")
@click.option("-s", "--debug-scores", default=0, help="Log the N best nodes of each attempt.")
@click.option("-f", "--debug-filters", is_flag=True, help="Log every node's reasons when a pod finds none.")
@click.option(
    "--scheduling-timeout",
    callback=lambda _, __, text: _duration(text),
    metavar="DURATION",
    help="Log and count attempts that take longer. [default: the settings', or 30s]",
)
@click.pass_obj
def run(
    chosen: Chosen,
    address: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    binders: tuple[str, ...],
    health_address: str,
    leader_elect: bool | None,
    lease: str | None,
    qps: float | None,
    debug_scores: int,
    debug_filters: bool,
    scheduling_timeout: float | None,
) -> None:
    """Run until a signal (the default).

    \b
    koord-scheduler run --no-leader-elect --port 0
    curl -X PUT localhost:10251/debug/flags/s -d 5     switch the score table on
    """
    bound_arenas()
    chosen, settings, stated = _configured(chosen)
    election = stated.election if stated is not None else None
    for note in stated.notes if stated is not None else ():
        _log.warning("%s", note)
    engine = _engine(settings, chosen.source)
    engine.flags.score_rows, engine.flags.filters = debug_scores, debug_filters
    if scheduling_timeout is not None:
        engine.flags.scheduling_timeout_seconds = scheduling_timeout
    name = identity()
    rate = qps or (stated.client.qps if stated is not None else 0.0) or QPS
    burst = (stated.client.burst if stated is not None and qps is None else 0) or int(2 * rate)
    sending = ClientSettings(requests_per_second=rate, burst=burst, user_agent=PROGRAM)
    competes = leader_elect if leader_elect is not None else election is None or election.leader_elect
    held = lease or (f"{election.resource_namespace}/{election.resource_name}" if election is not None else LEASE)
    elector = chosen.elector(held, name, _lease_times(election)) if competes else None
    leading = (lambda: elector.leading) if elector else None
    leads = leading or (lambda: True)
    metrics = Metrics(settings.scheduler_name)
    client = chosen.client(sending, metrics.requested)
    slack_seconds = elector.slack_seconds if elector is not None else None
    writes = chosen.client(fenced(sending, slack_seconds), metrics.requested, may_write=leads)
    told = chosen.client(fenced(ClientSettings(user_agent=PROGRAM), slack_seconds), metrics.requested, may_write=leads)
    recorder = EventRecorder(told, RecorderSettings(settings.scheduler_name, name))
    loop = Loop(client, engine, writes=writes, recorder=recorder, metrics=metrics, leading=leading)
    tls = _tls_files(tls_cert, tls_key, client_ca)
    if tls is not None and settings.extender_scheduler_names and not binders:
        die("the extender is on and no client may use it", hint="give --bind-client-name", code=USAGE_ERROR)
    api = HttpApi(loop, leads, frozenset(binders) if tls is not None else None)
    servers = [_listening(api, address, port, tls, bounds=listener_bounds(settings))]
    if health_address:
        host, _, text = health_address.rpartition(":")
        if not text.isdecimal():
            die(f"--health-address {health_address}: expected HOST:PORT", code=USAGE_ERROR)
        servers.append(_listening(HealthApi(loop, leads), host.strip("[]"), int(text), None, public=True))
    _log.info("serving HTTP on port %d", servers[0].port)
    hints = ((ForbiddenKindError, "deploy/manifests has the ClusterRole"),)
    run_until_signal(loop, recorder, elector, servers=servers, clients=(client, writes), hints=hints)


@main.command()
@click.argument("pod", metavar="NAMESPACE/POD")
@click.option("--nodes", default=20, show_default=True, help="Nodes to list.")
@click.pass_obj
def why(chosen: Chosen, pod: str, nodes: int) -> None:
    """Explain in one sentence why a pod is pending, and list each node's reasons.

    \b
    koord-scheduler why shop/cart-7d9f
    koord-scheduler --server http://127.0.0.1:8001 why shop/cart-7d9f --nodes 100
    """
    logging.getLogger().setLevel(logging.WARNING)
    namespace, _, name = pod.rpartition("/")
    key = Key(namespace or "default", name)
    chosen, settings, _ = _configured(chosen)
    engine = _engine(settings, chosen.source)
    now = time.time()
    with chosen.client(ClientSettings(requests_per_second=200, burst=500)) as client:
        try:
            found = find_pod(client, key)
            if found is None:
                die(f"no pod {key}", hint="name it as NAMESPACE/POD")
            load(client, engine, now)
            explanation = explain(engine, found, now)
        except ClusterError as error:
            die(f"API server: {error}")
    click.echo(explanation.sentence)
    if explanation.scores:
        click.echo(f"\n{explanation.scores}")
    against = [item for item in explanation.nodes if item.reasons]
    for item in against[:nodes]:
        click.echo(f"  {item.node}: {'; '.join(f'{reason.text} ({reason.plugin})' for reason in item.reasons)}")
    if len(against) > nodes:
        click.echo(f"  and {len(against) - nodes} more nodes; --nodes lists them")


def _configured(chosen: Chosen) -> tuple[Chosen, SchedulerSettings, KubeConfiguration | None]:
    """Return the settings of the file, be it this program's or a KubeSchedulerConfiguration."""
    if chosen.config is None:
        return chosen, SchedulerSettings(), None
    try:
        document = find(chosen.config.read_text(), chosen.source)
        if document is None:
            return chosen, chosen.settings(SchedulerSettings), None
        stated = read(document, chosen.source)
    except (SettingsError, OSError, UnicodeDecodeError) as error:
        die(str(error), code=USAGE_ERROR)
    if stated.client.kubeconfig and chosen.kubeconfig is None and not chosen.server:
        chosen = replace(chosen, kubeconfig=Path(stated.client.kubeconfig))
    return chosen, stated.settings, stated


def _duration(text: str | None) -> float | None:
    seconds = duration_seconds(text) if text is not None else None
    if text is not None and (seconds is None or seconds < 0):
        raise click.BadParameter("expected a duration such as 30s")
    return seconds


def _lease_times(election: LeaderElection | None) -> LeaseTimes | None:
    if election is None:
        return None
    return {
        "duration_seconds": duration_seconds(election.lease_duration) or 0.0,
        "renew_deadline_seconds": duration_seconds(election.renew_deadline) or 0.0,
        "retry_seconds": duration_seconds(election.retry_period) or 0.0,
    }


def fenced(settings: ClientSettings, slack_seconds: float | None) -> ClientSettings:
    """The settings with which a write that was sent while leading is over before another can lead.

    `slack_seconds` is the elector's, None without an election. Events are fenced as bindings are: what is on its way
    when a connection is cut is delivered once it heals, unless it was given up before.
    """
    if slack_seconds is None:
        return settings
    slack = max(slack_seconds, LEAST_SLACK_SECONDS)
    return replace(settings, connect_seconds=0.3 * slack, timeout_seconds=0.7 * slack)


def _tls_files(certificate: Path | None, key: Path | None, authority: Path | None) -> TlsFiles | None:
    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None or authority is None:
        die("--tls-cert, --tls-key and --client-ca go together", code=USAGE_ERROR)
    return TlsFiles(certificate, key, authority)


def _listening(
    door: HttpApi | HealthApi,
    address: str,
    port: int,
    tls: TlsFiles | None,
    *,
    public: bool = False,
    bounds: Bounds | None = None,
) -> Listener:
    try:
        return listen(door, address, port, tls=tls, public=public, bounds=bounds)
    except ExposedError as error:
        die(str(error), hint="give --tls-cert, --tls-key and --client-ca, or --address 127.0.0.1", code=USAGE_ERROR)
    except OSError as error:
        die(f"HTTP on {address}:{port}: {error}")


def _engine(settings: SchedulerSettings, source: str) -> Engine:
    try:
        return Engine(settings, source=source)
    except SettingsError as error:
        die(str(error), code=USAGE_ERROR)


if __name__ == "__main__":
    main()
