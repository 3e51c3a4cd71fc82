"""What the commands of cluster-wide programs share: options that find the API server, clients, election, refusals."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypedDict, TypeVar

import click

from api.settings import SettingsError, convert, parse
from cluster.client import Client, Observer, unobserved
from cluster.config import load_endpoint, plain_endpoint
from cluster.errors import ClusterError, NotConfigured
from cluster.events import EventRecorder
from cluster.leases import Elector, LeaseSettings
from cluster.resources import Key
from cluster.settings import ClientSettings
from cluster.transport import always

FAILED, USAGE_ERROR = 1, 2

_log = logging.getLogger("cluster.command_line")

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])


def die(message: str, *, hint: str = "", code: int = FAILED) -> NoReturn:
    """Print an error and its remedy, and exit."""
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    sys.exit(code)


class LeaseTimes(TypedDict):
    """Times of an election, in seconds (`cluster.LeaseSettings`)."""

    duration_seconds: float
    renew_deadline_seconds: float
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """Options that every command of a program has."""

    program: str
    config: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    server: str | None = None

    @property
    def source(self) -> str:
        """The name of the settings in messages."""
        return str(self.config or "settings")

    def settings(self, kind: type[S]) -> S:
        """Return the settings of the file, or the defaults; exits with a message where they cannot be used."""
        if self.config is None:
            return kind()
        try:
            return convert(parse(self.config.read_text(), self.source), kind, self.source)
        except (SettingsError, OSError, UnicodeDecodeError) as error:
            die(str(error), code=USAGE_ERROR)

    def client(
        self,
        settings: ClientSettings | None = None,
        observe: Observer = unobserved,
        *,
        may_write: Callable[[], bool] = always,
    ) -> Client:
        """Return a client of the chosen API server; exits with a message where there is none to choose."""
        try:
            if self.server:
                endpoint = plain_endpoint(self.server)
            else:
                endpoint = load_endpoint(kubeconfig=self.kubeconfig, context=self.context)
        except NotConfigured as error:
            die(str(error), hint="give --kubeconfig or --server, or run inside a cluster", code=USAGE_ERROR)
        chosen = settings or ClientSettings(user_agent=self.program)
        return Client(endpoint, chosen, observe=observe, may_write=may_write)

    def elector(
        self, lease: str, identity: str, times: LeaseTimes | None = None, observe: Observer = unobserved
    ) -> Elector:
        """Return a candidate for the lease NAMESPACE/NAME."""
        namespace, slash, name = lease.partition("/")
        if not (namespace and slash and name):
            die(f"--lease {lease}: expected NAMESPACE/NAME", code=USAGE_ERROR)
        client = self.client(ClientSettings(timeout_seconds=3.0, attempts=1, user_agent=self.program), observe)
        lease_key = Key(namespace, name)
        return Elector(
            client, LeaseSettings(lease_key, identity, **times) if times else LeaseSettings(lease_key, identity)
        )


class Runs(Protocol):
    """The main loop of a program."""

    def run(self) -> None:
        """Run until `stop`."""

    def stop(self) -> None:
        """End `run`, from any thread and from a signal's handler."""


class Stops(Protocol):
    """Something that was started beside the loop."""

    def stop(self) -> None:
        """End it and wait for its end."""


def run_until_signal(
    loop: Runs,
    recorder: EventRecorder,
    elector: Elector | None,
    *,
    servers: Sequence[Stops],
    clients: Sequence[Client],
    hints: Sequence[tuple[type[Exception], str]],
) -> None:
    """Run a program's loop until SIGINT or SIGTERM, then stop everything in order; exits with a message on errors.

    `hints` are the remedies for errors of the loop itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.stop())
    recorder.start()
    if elector:
        elector.start()
    try:
        loop.run()
    except tuple(kind for kind, _ in hints) as error:
        die(str(error), hint=next(hint for kind, hint in hints if isinstance(error, kind)))
    except ClusterError as error:
        die(f"API server: {error}")
    finally:
        for server in servers:
            server.stop()
        # Leading ends before the lease is given up, so that nothing is sent after it.
        if elector:
            elector.stop()
        recorder.stop()
        for client in clients:
            client.close()
    _log.info("ended with %d threads", threading.active_count())


def identity() -> str:
    """Return the name of this process among the candidates of an election."""
    return f"{socket.gethostname()}_{os.getpid()}"


def start_log(*, verbose: bool) -> None:
    """Log to standard error."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s %(message)s",
        stream=sys.stderr,
    )


def cluster_options(command: F) -> F:
    """Add the options of `Chosen`, and `--verbose`, to a command."""
    file = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Log more."),
        click.option("--server", help="URL of an API server that asks for no credentials (kubectl proxy)."),
        click.option("--context", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=file, help="Default: as kubectl finds it."),
        click.option(
            "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Settings, TOML or YAML."
        ),
    ):
        command = option(command)
    return command
