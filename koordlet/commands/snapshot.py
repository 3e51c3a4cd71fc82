"""`koordlet snapshot`: one measurement on stdout."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koordlet.commands.startup import (
    config_option,
    open_agent,
    pods_if_configured,
    program_facts,
    require_root,
    settings_of,
)

if TYPE_CHECKING:
    from koordlet.agent.agent import Agent


@click.command(name="snapshot")
@config_option
@click.option(
    "--seconds", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Length of the measurement."
)
@click.option(
    "--json", "as_object", is_flag=True, help="One JSON object (docs/snapshot.schema.json) instead of a table."
)
def snapshot_command(config: Path | None, seconds: float, as_object: bool) -> None:
    """Measure for some seconds and print the result, pods by name on a node of a cluster.

    \b
    Examples:
      koordlet snapshot --seconds 10
      koordlet snapshot --seconds 2 --json | jq '.cgroups[] | {path, wait: .cpu.wait_seconds}'
    """
    import msgspec

    from koordlet.agent.signals import until_signalled
    from koordlet.snapshot.document import snapshot

    require_root()
    settings = settings_of(config)
    measured: dict[str, Any] | None = None
    with ExitStack() as stack:
        agent = open_agent(settings, stack.enter_context(pods_if_configured(settings)))
        stack.callback(agent.close)
        stop = stack.enter_context(until_signalled())
        agent.collect(everything=True)
        if not stop.wait(seconds):
            agent.collect(everything=True)
            window = agent.store.window()
            assert window is not None
            measured = snapshot(window, agent.path_of, _host_facts(agent), _reasons(agent))
    if measured is None:
        sys.exit(130)
    if as_object:
        sys.stdout.buffer.write(msgspec.json.encode(measured) + b"\n")
    else:
        from koordlet.snapshot.table import print_table

        print_table(measured)


def _host_facts(agent: "Agent") -> dict[str, Any]:
    return program_facts() | {"cgroup_version": agent.hierarchies.version}


def _reasons(agent: "Agent") -> dict[str, str]:
    return {name: reason.reason for name, reason in agent.unsupported.items()} | agent.probes.partly
