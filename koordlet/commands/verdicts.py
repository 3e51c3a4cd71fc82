"""`koordlet verdicts`: open verdicts of this node, read from the running agent's socket."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import click

from api.verdict_text import in_words
from api.verdicts import Verdict, to_json
from koordlet.serving.broadcast import StreamMessage, VerdictFilter
from koordlet.serving.settings import DEFAULT_SOCKET

ENABLING = "enable it with `[serving] enabled = true` in the agent's settings, and run this as the same user"


class CommandError(click.ClickException):
    """Error with a hint, printed as the other commands do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self._hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print error and hint on stderr."""
        click.echo(f"error: {self.message}\nhint: {self._hint}", file=file, err=True)


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Stay, and print verdicts that open, change and close.")
@click.option("--json", "as_lines", is_flag=True, help="One `koord.verdict/v1` object a line.")
@click.option("--victim", default="", help="Only victims whose cgroup path matches this shell pattern.")
@click.option("--resource", default="", help="Only this resource: cpu, memory, blockio, network, cache.")
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    default=DEFAULT_SOCKET,
    show_default=True,
    help="Socket of the agent.",
)
def verdicts(follow: bool, as_lines: bool, victim: str, resource: str, socket: Path) -> None:
    """Print the open verdicts of the running agent.

    \b
    Examples:
      koordlet verdicts
      koordlet verdicts --follow --json --resource cpu | jq .victim
    """
    try:
        from koordlet.serving.client import AgentClient, AgentUnavailable
    except ImportError as error:
        raise CommandError(f"reading the socket needs grpcio ({error})", "pip install 'koord[grpc]'") from error
    matching = VerdictFilter(victim, resource)
    try:
        with AgentClient(socket) as client:
            if follow:
                _follow(client.follow(matching), as_lines=as_lines)
            else:
                for verdict in client.open_verdicts(matching):
                    _print(verdict, as_lines=as_lines)
    except AgentUnavailable as error:
        raise CommandError(str(error), ENABLING) from error
    except KeyboardInterrupt:
        sys.exit(130)


def _follow(stream: Iterable[StreamMessage], *, as_lines: bool) -> None:
    dropped = 0
    for message in stream:
        if message.dropped > dropped:
            click.echo(f"{message.dropped - dropped} verdicts were missed; all open ones follow", err=True)
            dropped = message.dropped
        if message.verdict is not None:
            _print(message.verdict, as_lines=as_lines)


def _print(verdict: Verdict, *, as_lines: bool) -> None:
    click.echo(to_json(verdict) if as_lines else in_words(verdict))
    sys.stdout.flush()
