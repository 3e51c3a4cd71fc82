"""Startup of the commands: settings file, judge settings, agent, and exit with error and hint."""

import logging
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from api.plugin import PluginError, Unsupported
from api.settings import SettingsError

if TYPE_CHECKING:
    from detector.judging.judge import JudgeSettings
    from koordlet.agent.agent import Agent
    from koordlet.config import AgentSettings
    from koordlet.kubelet.source import PodSource

_PODS_WAIT_SECONDS = 5.0
FAILED, USAGE_ERROR, UNSUPPORTED_HOST = 1, 2, 3

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file (TOML or YAML); <file>.d/*.toml are merged over it.",
)


def die(message: str, *, hint: str = "", code: int = FAILED) -> NoReturn:
    """Print an error and a hint on stderr, and exit."""
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    sys.exit(code)


def require_root() -> None:
    """Exit unless this process is root."""
    if os.geteuid() != 0:
        die("reading the kernel needs root", hint="run it with sudo", code=UNSUPPORTED_HOST)


def settings_of(path: Path | None) -> "AgentSettings":
    """Return the settings of a file, or the defaults; exit where it is invalid."""
    from koordlet.config import load_settings

    try:
        return load_settings(path)
    except SettingsError as error:
        die(str(error), code=USAGE_ERROR)


def judge_settings_of(settings: "AgentSettings", path: Path | None) -> "JudgeSettings | None":
    """Return the judge's settings; None where detection is disabled; exit where they are invalid."""
    from koordlet.agent.detection import judge_settings
    from koordlet.host.cpumodel import cpu_model
    from koordlet.host.files import HostTree

    if not settings.detection.enabled:
        if settings.recording.enabled:
            die("recording needs [detection]", hint="set enabled = true there", code=USAGE_ERROR)
        return None
    model = cpu_model(HostTree(Path(settings.root)))
    try:
        return judge_settings(settings.detection, cpu_model=model, source=str(path or "settings"))
    except (SettingsError, PluginError) as error:
        die(str(error), code=USAGE_ERROR)


def open_agent(settings: "AgentSettings", source: "PodSource | None" = None) -> "Agent":
    """Return the agent, which learns of pods from `source`; exit where this host cannot run it."""
    from koordlet.agent.agent import Agent

    try:
        if source is None:
            return Agent(settings)
        return Agent(settings, pods=source.table, on_unknown_pods=source.poke)
    except (SettingsError, PluginError) as error:
        die(str(error), code=USAGE_ERROR)
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy, code=UNSUPPORTED_HOST)


@contextmanager
def pods_if_configured(settings: "AgentSettings") -> "Iterator[PodSource | None]":
    """The source of pods once it knows some, or None: where this is no node of a cluster, or nothing answers soon.

    The kubeconfig and the node's name are those of [cluster], $KUBECONFIG and $NODE_NAME.
    """
    from koordlet.commands.cluster_mode import find_cluster_mode
    from koordlet.kubelet.opening import NothingConfigured

    try:
        mode = find_cluster_mode(settings, node="", kubeconfig="")
    except NothingConfigured:
        yield None
        return
    logging.getLogger("koordlet.kubelet").setLevel(logging.ERROR)  # what does not answer is doctor's to say
    with mode.open_source() as source:
        deadline = time.monotonic() + _PODS_WAIT_SECONDS
        while not len(source.table()) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield source if len(source.table()) else None


def program_facts() -> dict[str, Any]:
    """Host, kernel and version, for documents and recordings."""
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "koord_version": program_version(),
    }


def program_version() -> str:
    """Version of the installed distribution."""
    try:
        return version("koord")
    except PackageNotFoundError:
        return "unknown"
