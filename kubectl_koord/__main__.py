"""The command `kubectl koord`, found by kubectl as `kubectl-koord` on the PATH."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from api.crds import NODE_METRIC as NODE_METRIC_DEFINITION
from api.crds import NodeMetric
from api.kube.losses import Loss, by_node, losses
from api.protocol import ANNOTATION_STOP
from cluster import CONFIG_MAPS, NODES, ApiError, Client, ClusterError, Key, NotFound, custom, merge_patch
from cluster.command_line import Chosen, die
from kubectl_koord.agents import Agents, chosen_options

PROGRAM = "kubectl-koord"
_METRICS = custom(NODE_METRIC_DEFINITION)
_SOCKET = "unix:/run/koord/koordlet.sock"
_CONFIG = "/etc/koord/koordlet.toml"
"""Settings of the agent in its container, as the chart mounts them."""
_MANAGER, _MANAGER_CONFIG = "koord-manager", "manager.toml"
"""ConfigMap with the settings of the manager, as the chart names it, and the key."""
_LOOK_SECONDS = 2.0
"""Time between two looks at what is in effect; an agent follows an annotation of its node within one second."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Default: as kubectl finds it.")
@click.option("--context", "kube_context", help="Context of the kubeconfig.")
@click.option("--server", help="URL of an API server that asks for no credentials (kubectl proxy).")
@click.option("-n", "--namespace", default="koord-system", show_default=True, help="Namespace of the agents.")
@click.version_option(package_name="koord")
@click.pass_context
def main(
    context: click.Context, kubeconfig: Path | None, kube_context: str | None, server: str | None, namespace: str
) -> None:
    """Show which workloads lose time in the cluster, to what, and what is done about it.

    \b
    Examples:
      kubectl koord nodes                     losses by node
      kubectl koord verdicts                  open verdicts of all nodes
      kubectl koord why shop/web-7d4b         what a pod loses, and to what
      kubectl koord top node-7                live view of one node
      kubectl koord actions node-7            settings in effect there, and the last decisions
      kubectl koord pause node-7              end all actions on a node until `resume`
      kubectl koord restore node-7            the same, and wait until each is restored
      kubectl koord explain node/node-7       why an object has the values that the manager gives it
    """
    chosen = Chosen(PROGRAM, None, kubeconfig, kube_context, server)
    context.obj = Agents(context.with_resource(chosen.client()), chosen, namespace)


@main.command()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_obj
def nodes(agents: Agents, output: str) -> None:
    """List the nodes by what their workloads lose."""
    with _reported():
        rows = by_node(_metrics(agents.client), time.time())
    if output == "json":
        click.echo(msgspec.json.encode(rows))
        return
    cells = [(row.node, str(row.victims), f"{row.lost_seconds_per_second:.3f}", _age(row.age_seconds)) for row in rows]
    _table(("NODE", "VICTIMS", "LOST S/S", "REPORTED"), cells, "no node has reported: is the agent installed?")


@main.command()
@click.option("--node", default="", help="Only this node.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_obj
def verdicts(agents: Agents, node: str, output: str) -> None:
    """List the open verdicts, the largest loss first."""
    with _reported():
        found = [loss for loss in losses(_metrics(agents.client), time.time()) if node in ("", loss.node)]
    _show(found, output, "no verdict is open")


@main.command()
@click.argument("subject", metavar="NAMESPACE/POD")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_obj
def why(agents: Agents, subject: str, output: str) -> None:
    """Show the open verdicts in which a pod is victim or culprit. Exit 0 with or without any."""
    if subject.count("/") != 1:
        die(f"{subject}: expected NAMESPACE/POD", code=2)
    with _reported():
        found = [loss for loss in losses(_metrics(agents.client), time.time()) if loss.names(subject)]
    _show(found, output, f"{subject} loses nothing to others and costs others nothing, as far as its node reports")


@main.command()
@click.argument("node")
@click.pass_obj
def top(agents: Agents, node: str) -> None:
    """Show victims and culprits of a node, live."""
    with _reported():
        sys.exit(agents.run_on(node, ["koordlet", "top", "--connect", _SOCKET], terminal=True))


@main.command()
@click.argument("node")
@click.option("--log", "lines", type=click.IntRange(0, 100_000), default=10, show_default=True, help="Decisions shown.")
@click.pass_obj
def actions(agents: Agents, node: str, lines: int) -> None:
    """Show the settings in effect on a node, and the last decisions there."""
    with _reported():
        sys.exit(agents.run_on(node, ["koordlet", "actions", "--config", _CONFIG, "--log", str(lines)]))


@main.command()
@click.argument("node")
@click.pass_obj
def doctor(agents: Agents, node: str) -> None:
    """Show what a node can measure and do."""
    with _reported():
        sys.exit(agents.run_on(node, ["koordlet", "doctor", "--config", _CONFIG]))


@main.command()
@click.argument("node")
@click.pass_obj
def pause(agents: Agents, node: str) -> None:
    """End all actions on a node, and allow none, until `resume`. The agent goes on to measure."""
    _annotate(agents.client, node, "true")
    click.echo(f"node/{node} paused: the agent restores its actions")


@main.command()
@click.argument("node")
@click.option(
    "--wait", "wait_seconds", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds to wait at most."
)
@click.pass_obj
def restore(agents: Agents, node: str, wait_seconds: float) -> None:
    """End all actions on a node as `pause` does, and wait until each is restored. The node stays paused.

    Exit 0 when none is left, 1 with those that are. State that the protocol gives pods stays, as long as they run.
    """
    _annotate(agents.client, node, "true")
    until = time.monotonic() + wait_seconds
    while True:
        time.sleep(_LOOK_SECONDS)
        with _reported():
            held = _in_effect(agents, node)
        left = [row for row in held if row.get("kind") == "action"]
        if not left or time.monotonic() >= until:
            break
    for row in left:
        click.echo(_printable(f"{row.get('file')} = {row.get('value')} (was {row.get('original')})"))
    if left:
        die(
            f"node/{node}: {len(left)} actions in effect after {wait_seconds:g} s",
            hint="does its agent watch the node?",
        )
    click.echo(f"node/{node} restored: no action is in effect, {len(held)} settings of the protocol stay; paused")


@main.command()
@click.argument("node")
@click.pass_obj
def resume(agents: Agents, node: str) -> None:
    """Allow actions on a node again."""
    _annotate(agents.client, node, None)
    click.echo(f"node/{node} resumed")


@main.command()
@click.argument("target", metavar="KIND/[NAMESPACE/]NAME")
@click.pass_obj
def explain(agents: Agents, target: str) -> None:
    """Explain the values that the manager gives an object, by the manager's settings and the present objects.

    \b
    Examples:
      kubectl koord explain node/node-7
      kubectl koord explain recommendation/shop/web-1a2b3c4d
    """
    key = Key(agents.namespace, _MANAGER)
    try:
        found = agents.client.get(CONFIG_MAPS.of(dict), key)
    except NotFound:
        die(f"there is no ConfigMap {key}", hint="is the manager installed? --namespace names another")
    except (ApiError, ClusterError) as error:
        die(str(error))
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / _MANAGER_CONFIG
        config.write_text((found.get("data") or {}).get(_MANAGER_CONFIG, ""))
        # A process, since programs share no code; -P keeps modules of the present directory out of it.
        options = ["--config", str(config), *chosen_options(agents.chosen)]
        ran = subprocess.run([sys.executable, "-P", "-m", "controllers", *options, "explain", target], check=False)
    sys.exit(ran.returncode)


def _in_effect(agents: Agents, node: str) -> list[dict[str, Any]]:
    """Return settings in effect on a node, as its agent's journal has them."""
    told = agents.told_by(node, ["koordlet", "actions", "--config", _CONFIG, "--log", "0", "--json"])
    try:
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in told.splitlines()]
    except msgspec.DecodeError as error:
        die(f"node/{node}: what its agent has in effect cannot be read: {error}")


def _annotate(client: Client, node: str, value: str | None) -> None:
    with _reported():
        try:
            client.patch(NODES, Key("", node), merge_patch({"metadata": {"annotations": {ANNOTATION_STOP: value}}}))
        except NotFound:
            die(f"there is no node {node}", hint="kubectl get nodes")


def _metrics(client: Client) -> Sequence[NodeMetric]:
    return client.list(_METRICS).values


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        die(f"{error}", hint="are the custom resources installed? (deploy/crds)")
    except (ApiError, ClusterError) as error:
        die(str(error))


def _show(found: Sequence[Loss], output: str, nothing: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(found))
        return
    cells = [
        (loss.node, loss.victim, loss.resource, f"{loss.lost_seconds_per_second:.3f}", ", ".join(loss.culprits) or "-")
        for loss in found
    ]
    _table(("NODE", "VICTIM", "RESOURCE", "LOST S/S", "CULPRITS"), cells, nothing)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    if not rows:
        click.echo(nothing)
        return
    safe = [[_printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *safe, strict=True)]
    for row in (heads, *safe):
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _printable(text: str) -> str:
    """Names come from objects that others write: no control character reaches the terminal."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return f"{seconds:.0f} s ago" if seconds < 600 else f"{seconds / 60:.0f} min ago"


if __name__ == "__main__":
    main()
