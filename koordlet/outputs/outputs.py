"""Optional sinks that the settings ask for: focus of the probes, socket, cluster, profiles. Imported only then."""

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from api.plugin import Unsupported
from koordlet.agent.sinks import Sink
from koordlet.outputs.cluster_links import ClusterLinks
from koordlet.tick import Tick
from koordlet.triage.focus import FocusControl

if TYPE_CHECKING:
    from koordlet.agent.agent import Agent
    from koordlet.agent.detection import Detection
    from koordlet.config import AgentSettings


@contextmanager
def open_sinks(
    agent: "Agent",
    detection: "Detection | None",
    settings: "AgentSettings",
    version: str,
    links: ClusterLinks | None = None,
) -> Iterator[dict[str, Sink]]:
    """Sinks by name, open while the block runs; `links` are what the cluster acts on and is told.

    Raises Unsupported, with a remedy, for one that cannot be opened.
    """
    with ExitStack() as stack:
        sinks: dict[str, Sink] = {}
        if settings.triage.enabled and any(probe.focusable for probe in agent.probes.opened.values()):
            sinks["triage"] = _triage(stack, agent, detection, settings)
        if settings.serving.enabled:
            sinks["serving"] = _serving(stack, agent, settings, version)
        if settings.cluster.enabled:
            sinks["cluster"] = _cluster(stack, agent, detection, settings, links)
        if settings.profiles.enabled:
            sinks["profiles"] = _profiles(stack, agent, detection, settings, links)
        yield sinks


def _triage(stack: ExitStack, agent: "Agent", detection: "Detection | None", settings: "AgentSettings") -> Sink:
    control = FocusControl(settings.triage, agent.probes.opened)
    stack.callback(control.close)
    agent.extra_readings.append(control.reading)

    def move_focus(tick: Tick) -> None:
        no_suspects = np.zeros(len(tick.window.cgroups), dtype=np.bool_)
        control.after_tick(tick, detection.judge.suspects if detection else no_suspects)

    return move_focus


def _serving(stack: ExitStack, agent: "Agent", settings: "AgentSettings", version: str) -> Sink:
    try:
        from koordlet.serving.server import AgentServer
    except ImportError as error:
        raise Unsupported(f"[serving] needs grpcio ({error})", "pip install 'koord[grpc]'") from error
    from koordlet.serving.socket_file import SocketUnusable
    from koordlet.serving.status import AgentStatus, capabilities

    known = capabilities(agent.capabilities(), agent.unsupported, agent.probes.partly)
    status = AgentStatus(platform.node(), version, platform.release(), settings.interval_seconds, known)
    server = AgentServer(settings.serving, status)
    try:
        server.start()
    except SocketUnusable as error:
        raise Unsupported(str(error), error.remedy) from error
    stack.callback(server.close)
    ticks = 0

    def serve(tick: Tick) -> None:
        nonlocal ticks
        ticks += 1
        seconds = tick.window.last.wall_ns / 1e9
        now = replace(status, ticks=ticks, last_tick_seconds=seconds, cgroups=len(tick.window.cgroups))
        server.update(now, tick.verdicts, tick.open_verdicts, tick.window.last)
        agent.lost["serving.verdicts"] = server.broadcast.dropped

    return serve


def _cluster(
    stack: ExitStack,
    agent: "Agent",
    detection: "Detection | None",
    settings: "AgentSettings",
    links: ClusterLinks | None,
) -> Sink:
    try:
        from koordlet.outputs.cluster_sink import open_cluster
    except ImportError as error:
        raise Unsupported(f"[cluster] needs the Kubernetes client ({error})", "pip install 'koord[cluster]'") from error
    return open_cluster(stack, agent, detection, settings, links or ClusterLinks())


def _profiles(
    stack: ExitStack,
    agent: "Agent",
    detection: "Detection | None",
    settings: "AgentSettings",
    links: ClusterLinks | None,
) -> Sink:
    from koordlet.outputs.container_amounts import container_amounts
    from koordlet.profiles.oom_kills import OomKills
    from koordlet.profiles.writer import ProfileWriter

    judge_settings = detection.judge.settings if detection else None
    span_seconds = judge_settings.span_seconds if judge_settings else settings.interval_seconds
    node_type = judge_settings.node_type if judge_settings else ""
    amounts_of = container_amounts((links or ClusterLinks()).pods)
    try:
        profiles = ProfileWriter(settings.profiles, node_type, span_seconds, amounts_of)
    except OSError as error:
        raise Unsupported(f"profiles cannot be kept: {error}", "set another [profiles] directory") from error
    stack.callback(profiles.close)
    oom_kills = OomKills()

    def record(tick: Tick) -> None:
        oom_kills.after_tick(tick.window.cgroups, tick.delta)
        recent = agent.store.window(span_seconds)
        if recent is not None and profiles.is_due(recent):
            profiles.after_tick(recent, tick.open_verdicts, oom_kills.take())
        agent.lost["profiles.rows"] = profiles.lost_rows

    return record
