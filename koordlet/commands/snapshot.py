"""`koordlet snapshot`: one measurement on stdout."""

import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from koordlet.commands.startup import (
    config_option,
    die,
    open_agent,
    pods_if_configured,
    program_facts,
    require_root,
    settings_of,
)

if TYPE_CHECKING:
    from api.frame import Frame
    from koordlet.agent.agent import Agent
    from koordlet.config import AgentSettings


@click.command(name="snapshot")
@config_option
@click.option(
    "--seconds", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="Length of the measurement."
)
@click.option(
    "--json", "as_object", is_flag=True, help="One JSON object (docs/snapshot.schema.json) instead of a table."
)
@click.option(
    "--stacks", "stacks_of", default="", metavar="CGROUP", help="With --json: also its stacks, by path or name."
)
def snapshot_command(config: Path | None, seconds: float, as_object: bool, stacks_of: str) -> None:
    """Measure for some seconds and print the result, pods by name on a node of a cluster.

    \b
    Examples:
      koordlet snapshot --seconds 10
      koordlet snapshot --seconds 2 --json | jq '.cgroups[] | {path, wait: .cpu.wait_seconds}'
      koordlet snapshot --json --stacks /system.slice/redis.service | jq '.stacks.series[].stacks[:5]'
    """
    import msgspec

    from koordlet.agent.signals import until_signalled
    from koordlet.snapshot.document import snapshot

    if stacks_of and not as_object:
        raise click.UsageError("--stacks needs --json")
    require_root()
    settings = settings_of(config)
    measured: dict[str, Any] | None = None
    with ExitStack() as stack:
        agent = open_agent(settings, stack.enter_context(pods_if_configured(settings)))
        stack.callback(agent.close)
        stop = stack.enter_context(until_signalled())
        first = agent.collect(everything=True)
        stacks = _stacks(agent, settings, stacks_of, first, seconds, stop) if stacks_of else {}
        if not stop.wait(0 if stacks else seconds):
            agent.collect(everything=True)
            window = agent.store.window()
            assert window is not None
            measured = snapshot(window, agent.path_of, _host_facts(agent), _reasons(agent)) | stacks
    if measured is None:
        sys.exit(130)
    if as_object:
        sys.stdout.buffer.write(msgspec.json.encode(measured) + b"\n")
    else:
        from koordlet.snapshot.table import print_table

        print_table(measured)


def _stacks(
    agent: "Agent", settings: "AgentSettings", wanted: str, first: "Frame", seconds: float, stop: Event
) -> dict[str, Any]:
    """Stacks of the cgroups of this path or name, as a property of the document; exit where there can be none."""
    import msgspec

    from api.plugin import Unsupported
    from koordlet.evidence.capture import StackTaker
    from koordlet.evidence.plan import plan_for
    from koordlet.host.files import HostTree
    from probes.stacks import Stacks

    source = agent.probes.opened.get("stacks")
    if not isinstance(source, Stacks):
        reason = agent.unsupported.get("stacks")
        die(f"no stacks: {reason.reason if reason else 'the probe is off'}", hint=reason.remedy if reason else "")
    try:
        plan = plan_for(wanted, first.cgroups)
        taken = StackTaker(source, HostTree(Path(settings.root)), agent.hierarchies.cpu).take(plan, seconds, stop)
    except ValueError as error:
        die(f"--stacks: {error}")
    except (Unsupported, OSError) as error:
        die(f"no stacks: {error}")
    return {"stacks": msgspec.to_builtins(taken)}


def _host_facts(agent: "Agent") -> dict[str, Any]:
    return program_facts() | {"cgroup_version": agent.hierarchies.version}


def _reasons(agent: "Agent") -> dict[str, str]:
    return {name: reason.reason for name, reason in agent.unsupported.items()} | agent.probes.partly
