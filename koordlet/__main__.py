"""The `koordlet` command; its subcommands are the modules of `koordlet/commands/`."""

import os

import click

from koordlet.commands.actions import actions
from koordlet.commands.demo import demo
from koordlet.commands.doctor import doctor
from koordlet.commands.export import export
from koordlet.commands.restore import restore
from koordlet.commands.restore_nodes import restore_nodes
from koordlet.commands.run import run
from koordlet.commands.snapshot import snapshot_command
from koordlet.commands.top import top
from koordlet.commands.verdicts import verdicts


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="koord")
def main() -> None:
    """Find the cgroups that lose time on this node, the causes, and the culprits.

    \b
    Examples:
      koordlet top                              live view
      koordlet run --standalone                 observe, log verdicts, serve metrics
      koordlet snapshot --seconds 5 --json      one measurement on stdout
      koordlet doctor                           what this host can measure
    """
    # Whichever umask it was started with, what it writes is not for others to change.
    os.umask(os.umask(0o077) | 0o022)


for command in (run, snapshot_command, doctor, top, demo, restore, restore_nodes, verdicts, actions, export):
    main.add_command(command)


if __name__ == "__main__":
    main()
