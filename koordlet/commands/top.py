"""`koordlet top`: the live view."""

import logging
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koordlet.commands.startup import (
    USAGE_ERROR,
    config_option,
    die,
    judge_settings_of,
    open_agent,
    pods_if_configured,
    require_root,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.verdicts import Verdict
    from api.window import Window
    from koordlet.agent.detection import Detection
    from koordlet.config import AgentSettings


@click.command()
@config_option
@click.option(
    "--connect",
    metavar="PLACE",
    help="Show what the agent at unix:PATH or HOST:PORT measures, instead of measuring here.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="With HOST:PORT: PEM file of the client certificate.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM file of its private key.")
@click.option("--tls-ca", type=click.Path(path_type=Path), help="PEM file of the authority of the agent's certificate.")
@click.option("--tls-server-name", default="", help="Name in the agent's certificate, where it is not HOST.")
def top(
    config: Path | None,
    connect: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    tls_server_name: str,
) -> None:
    """Show victims by lost seconds, with causes and culprits, live. Keys: s sort, enter open, p pause, q quit.

    \b
    Examples:
      koordlet top
      koordlet top --connect unix:/run/koord/koordlet.sock
      koordlet top --connect node-7:9317 --tls-cert me.crt --tls-key me.key --tls-ca agents.crt
    """
    if not sys.stdout.isatty():
        die("top needs a terminal", hint="use `koordlet run --standalone` or `koordlet snapshot`", code=USAGE_ERROR)
    if connect is not None:
        files = (tls_cert, tls_key, tls_ca)
        sys.exit(_show_remote(connect, files, tls_server_name))
    require_root()
    settings = settings_of(config)
    from koordlet.top.app import TREND_SECONDS, Verdicts
    from koordlet.top.app import run as run_top

    logging.getLogger().addHandler(logging.NullHandler())  # a line on stderr would tear the screen
    detection = _open_detection(settings, config)
    stack = ExitStack()
    agent = open_agent(settings, stack.enter_context(pods_if_configured(settings)))
    stack.callback(agent.close)

    def next_window() -> "Window | None":
        frame = agent.collect()
        if detection is not None:
            detection.step(frame)
        return agent.store.window(TREND_SECONDS)

    verdicts = Verdicts(lambda: detection.open_verdicts if detection else (), agent.name_of)
    try:
        code = run_top(next_window, settings.interval_seconds, verdicts)
    finally:
        stack.close()
    sys.exit(code)


def _show_remote(place: str, files: "tuple[Path | None, Path | None, Path | None]", server_name: str) -> int:
    try:
        from koordlet.serving.certificates import CertificateFiles, CertificatesUnusable
        from koordlet.serving.client import AgentClient, AgentUnavailable, place_of
    except ImportError as error:
        die(f"--connect needs grpcio ({error})", hint="pip install 'koord[grpc]'")
    from koordlet.agent.frame_store import FrameStore
    from koordlet.serving.broadcast import VerdictFilter
    from koordlet.top.app import TREND_SECONDS, Verdicts
    from koordlet.top.app import run as run_top
    from koordlet.top.remote import RemoteAgent

    certificate, key, authority = files
    if any(files) and not all(files):
        die("--tls-cert, --tls-key and --tls-ca belong together", code=USAGE_ERROR)
    tls = CertificateFiles(certificate, key, authority) if certificate and key and authority else None
    try:
        with AgentClient(place_of(place), tls=tls, server_name=server_name) as client:
            interval_seconds = client.node().interval_seconds

            def open_verdicts() -> "Sequence[Verdict]":
                return client.open_verdicts(VerdictFilter())

            def store() -> FrameStore:
                return FrameStore(TREND_SECONDS, interval_seconds)

            remote = RemoteAgent(client.frames, open_verdicts, store, AgentUnavailable)
            remote.start()
            try:
                verdicts = Verdicts(lambda: remote.open_verdicts)
                code = run_top(lambda: remote.window(TREND_SECONDS), interval_seconds, verdicts)
            finally:
                remote.stop()
    except ValueError as error:
        die(f"--connect {error}", code=USAGE_ERROR)
    except CertificatesUnusable as error:
        die(str(error), hint="give --tls-cert, --tls-key and --tls-ca of one another", code=USAGE_ERROR)
    except AgentUnavailable as error:
        die(str(error), hint="the agent needs [serving] enabled = true, and address for HOST:PORT")
    if remote.problem:
        click.echo(f"at last: {remote.problem}", err=True)
    return code


def _open_detection(settings: "AgentSettings", path: Path | None) -> "Detection | None":
    """A judge that starts from the baselines of a running agent, and neither saves nor records."""
    from detector.judging.judge import Judge
    from koordlet.agent.baseline_store import read_baselines
    from koordlet.agent.detection import Detection

    judge_settings = judge_settings_of(settings, path)
    if judge_settings is None:
        return None
    loaded = read_baselines(Path(settings.detection.baselines_file), time.time(), judge_settings.baselines)
    return Detection(Judge(judge_settings, loaded.baselines))
