"""`koordlet restore-nodes`: every node of the DaemonSet restores what its agent changed, before it is uninstalled."""

import logging
import sys

import click

from koordlet.commands.startup import FAILED, USAGE_ERROR, die


@click.command(name="restore-nodes")
@click.option("--daemonset", required=True, help="The agents' DaemonSet, as namespace/name.")
@click.option("--kubeconfig", default="", help="How to reach the API server [as for `koordlet run`].")
@click.option("--timeout", "timeout_seconds", type=float, default=300.0, help="Seconds to wait for the nodes [300].")
def restore_nodes(daemonset: str, kubeconfig: str, timeout_seconds: float) -> None:
    """Have every node restore actions and protocol state. Exit 0 when all nodes have.

    The DaemonSet's pods run `koordlet restore --all` in place of the agent from then on; delete it next. The chart runs
    this before `helm uninstall`. A node that is not ready restores nothing: its changes end with its next boot, or with
    `koordlet restore --all` there.

    \b
    Example:
      koordlet restore-nodes --daemonset koord-system/koordlet
    """
    from cluster import ApiError, NotConfigured
    from koordlet.kube.reporter import connect
    from koordlet.kube.rollout import key_of
    from koordlet.kube.rollout import restore_nodes as restore
    from koordlet.kube.settings import ClusterSettings

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        key = key_of(daemonset)
        with connect(ClusterSettings(kubeconfig=kubeconfig)) as client:
            waiting = restore(client, key, timeout_seconds)
    except (ValueError, NotConfigured) as error:
        die(str(error), code=USAGE_ERROR)
    except ApiError as error:
        die(f"{daemonset}: {error}")
    if waiting is None:
        click.echo(f"there is no DaemonSet {daemonset}: nothing to restore")
    elif waiting:
        nodes = f"{waiting} nodes" if waiting > 0 else "no node"
        which = "have not restored" if waiting > 0 else "was told: the DaemonSet's controller does not answer"
        click.echo(f"error: {nodes} {which} after {timeout_seconds:g} s", err=True)
        click.echo(f"hint: kubectl get pods --all-namespaces shows which ({daemonset})", err=True)
        sys.exit(FAILED)
    else:
        click.echo("every node has restored what its agent changed")
