"""`koordlet run`: the node agent."""

from pathlib import Path

import click

from koordlet.commands.startup import config_option, settings_of


@click.command()
@config_option
@click.option("--standalone", is_flag=True, help="Without Kubernetes: watch every cgroup of this host.")
@click.option("--node", default="", envvar="NODE_NAME", help="Name of this node [$NODE_NAME, then the host's name].")
@click.option(
    "--kubeconfig",
    default="",
    help="How to reach the API server [$KUBECONFIG, ~/.kube/config, then the pod's service account].",
)
@click.option(
    "--daemonset",
    default="",
    envvar="KOORD_DAEMONSET",
    help="DaemonSet of this agent, as namespace/name: its rollouts hand actions over [$KOORD_DAEMONSET].",
)
@click.option("--json", "as_objects", is_flag=True, help="Verdicts as JSON lines on stdout instead of the log.")
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    help="Record frames in this directory ([recording]).",
)
@click.option(
    "--enforce",
    is_flag=True,
    help="Act on culprits as [enforcer] and [response] allow; without it actions are only audited as a dry run.",
)
@click.option("--check-config", is_flag=True, help="Validate the settings file and the rules, and exit.")
@click.option("-v", "--verbose", is_flag=True, help="Log full cgroup paths, and failures of single sources.")
def run(
    config: Path | None,
    standalone: bool,
    node: str,
    kubeconfig: str,
    daemonset: str,
    as_objects: bool,
    record: Path | None,
    enforce: bool,
    check_config: bool,
    verbose: bool,
) -> None:
    """Run the agent until stopped. It observes; only with --enforce does it write to cgroups.

    On a node of a cluster it learns of pods from the kubelet, the container runtime and the API server, as [kubelet]
    says, and reports as [cluster] says; --standalone does without all of them, and refuses [cluster] enabled = true.

    \b
    Examples:
      koordlet run --node node-0 --kubeconfig /etc/kubernetes/koordlet.conf
      koordlet run --standalone
      koordlet run --standalone --json | jq -r '[.state, .victim, .cause, .culprits[0].path] | @tsv'
      koordlet run --standalone --record /var/lib/koord/recordings
      koordlet run --standalone --enforce --config /etc/koord/koordlet.toml
      koordlet run --standalone --config /etc/koord/koordlet.toml
      koordlet run --check-config --config koordlet.toml
    """
    from koordlet.commands.run_agent import RunFlags, run_agent

    flags = RunFlags(
        standalone=standalone,
        node=node,
        kubeconfig=kubeconfig,
        config=config,
        daemonset=daemonset,
        as_objects=as_objects,
        record=record,
        enforce=enforce,
        verbose=verbose,
    )
    run_agent(settings_of(config), config, flags, only_check=check_config)
