"""`koordlet demo`: interference and protection shown on this machine."""

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from api.programs.extras import is_installed
from koordlet.commands.startup import UNSUPPORTED_HOST, die

_DRAWN = "a picture needs matplotlib", "pip install 'koord[analysis]'"
"""Why there is none, and the remedy."""


@click.command()
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("koord-demo.png"),
    show_default=True,
    help="File for the picture; '-' draws none.",
)
@click.option(
    "--phase-seconds", type=click.FloatRange(5, 3600), default=30.0, show_default=True, help="Length of each phase."
)
@click.option(
    "--request-ms", type=click.FloatRange(0.2, 1000), default=10.0, show_default=True, help="CPU time of a request."
)
@click.option(
    "--load",
    type=click.FloatRange(0.01, 0.95),
    default=0.3,
    show_default=True,
    help="Part of the machine that the requests need.",
)
def demo(picture: Path, phase_seconds: float, request_ms: float, load: float) -> None:
    """Show a service beside a noisy neighbour. Measures its cost and the effect of protection on this machine.

    Starts a service under open-loop load and best-effort work in cgroups of its own (/koord-demo), measures the service
    alone, beside that work, and beside it protected; prints a table, saves a picture, removes its cgroups.

    \b
    Examples:
      koordlet demo
      koordlet demo --request-ms 1 --picture /tmp/one-millisecond.png
    """
    import os

    from rich.console import Console

    from koordlet.agent.signals import until_signalled
    from koordlet.demo.run import NAMES, DemoPlan, run
    from koordlet.demo.stage import StageError

    if os.geteuid() != 0:
        die("the demo makes cgroups, which needs root", hint="run it with sudo", code=UNSUPPORTED_HOST)
    drawn = None if str(picture) == "-" else picture
    if drawn is not None and not is_installed("matplotlib"):
        if click.get_current_context().get_parameter_source("picture") is not ParameterSource.DEFAULT:
            die(_DRAWN[0], hint=_DRAWN[1])
        drawn = None
        click.echo(f"no picture will be drawn: {': '.join(_DRAWN)}", err=True)
    plan = DemoPlan(phase_seconds, request_ms / 1e3, load)
    try:
        with until_signalled() as stop:
            phases = run(plan, drawn, Console(), stop)
    except (StageError, OSError, TimeoutError) as error:
        die(str(error), hint="run `koordlet doctor` for the capabilities of this host")
    sys.exit(0 if len(phases) == len(NAMES) else 130)
