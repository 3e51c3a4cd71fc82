"""`koordlet restore`: restore what an agent left changed: actions, and protocol state on request."""

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import click

from api.plugin import Unsupported
from api.settings import SettingsError
from koordlet.commands.startup import FAILED, UNSUPPORTED_HOST, USAGE_ERROR, die


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Settings file of the agent.")
@click.option("--all", "everything", is_flag=True, help="Restore protocol state too, as for an uninstallation.")
@click.option("--wait", "wait_seconds", type=float, default=0.0, help="Seconds to wait for an agent that ends [0].")
@click.option(
    "--stay", is_flag=True, help="Then stay until SIGTERM or SIGINT, as a pod does that holds a node's place."
)
def restore(config: Path | None, everything: bool, wait_seconds: float, stay: bool) -> None:
    """Restore actions that an agent left in effect. Exit 0 unless one fails.

    Protocol state (shares and limits of batch resources, CPU lists, memory QoS) stays unless --all is given: it belongs
    to the pods. Idempotent; refuses while an agent runs.

    \b
    Examples:
      koordlet restore
      koordlet restore --all
      ExecStopPost=/usr/bin/koordlet restore --config /etc/koord/koordlet.toml
    """
    from koordlet.config import load_settings
    from koordlet.enforcer.audit import Outcome
    from koordlet.enforcer.journal import JournalError
    from koordlet.enforcer.lifecycle import WAIT_SECONDS
    from koordlet.enforcer.lifecycle import restore as put_back
    from koordlet.host.files import HostTree

    try:
        settings = load_settings(config)
        if os.geteuid() != 0:
            die("writing to cgroups needs root", hint="run it with sudo", code=UNSUPPORTED_HOST)
        events = put_back(
            settings.enforcer,
            HostTree(Path(settings.root)),
            everything=everything,
            wait_seconds=max(wait_seconds, WAIT_SECONDS),
        )
    except SettingsError as error:
        die(str(error), code=USAGE_ERROR)
    except JournalError as error:
        die(str(error))
    except Unsupported as lack:
        die(lack.reason, hint=lack.remedy, code=UNSUPPORTED_HOST)
    for event in events:
        click.echo(f"{event.outcome:<19} {event.file}  {event.before} -> {event.after}  {event.reason}")
    counts = Counter(event.outcome for event in events)
    click.echo(
        f"{counts[Outcome.RESTORED]} put back, {counts[Outcome.FAILED]} failed, {counts[Outcome.FOREIGN_WRITE]} foreign"
    )
    if counts[Outcome.FAILED]:
        sys.exit(FAILED)
    if stay:
        _stay()


def _stay() -> None:
    """Wait for a signal to end; as the first process of a container too, to which no default applies."""
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    click.echo("restored; staying until told to end")
    signal.sigwait(signals)
