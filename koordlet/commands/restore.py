"""`koordlet restore`: restore the settings that a killed agent left changed."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

import click

from api.plugin import Unsupported
from api.settings import SettingsError

_FAILED, _ASKED_WRONGLY, _HOST_CANNOT = 1, 2, 3


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Settings file of the killed agent.")
def restore(config: Path | None) -> None:
    """Restore settings that a killed agent left changed; exit 0 unless one fails.

    Idempotent; refuses while an agent runs.

    \b
    Examples:
      koordlet restore
      ExecStopPost=/usr/bin/koordlet restore --config /etc/koord/koordlet.toml
    """
    from koordlet.config import load_settings
    from koordlet.enforcer.audit import Outcome
    from koordlet.enforcer.journal import JournalError
    from koordlet.enforcer.lifecycle import restore as put_back
    from koordlet.host.files import HostTree

    try:
        settings = load_settings(config)
        if os.geteuid() != 0:
            _leave("writing to cgroups needs root", _HOST_CANNOT)
        events = put_back(settings.enforcer, HostTree(Path(settings.root)))
    except SettingsError as error:
        _leave(str(error), _ASKED_WRONGLY)
    except JournalError as error:
        _leave(str(error), _FAILED)
    except Unsupported as lack:
        _leave(lack.reason, _HOST_CANNOT)
    for event in events:
        click.echo(f"{event.outcome:<10} {event.file}  {event.before} -> {event.after}  {event.reason}")
    counts = Counter(event.outcome for event in events)
    click.echo(
        f"{counts[Outcome.RESTORED]} put back, {counts[Outcome.FAILED]} failed, {counts[Outcome.FOREIGN_WRITE]} foreign"
    )
    sys.exit(_FAILED if counts[Outcome.FAILED] else 0)


def _leave(message: str, code: int) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(code)
