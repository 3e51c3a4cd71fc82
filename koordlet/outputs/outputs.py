"""What the settings ask for beyond measuring and judging: close look, socket, cluster, profiles. Imported only then."""

import logging
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from api.plugin import Unsupported
from api.verdicts import Verdict
from api.window import Window
from detector.registry import discover_symptoms
from koordlet.agent.loop import Face
from koordlet.triage.focus import FocusControl

if TYPE_CHECKING:
    from koordlet.agent.agent import Agent
    from koordlet.config import AgentSettings

_log = logging.getLogger(__name__)


@contextmanager
def outlets(agent: "Agent", settings: "AgentSettings", version: str) -> Iterator[tuple[Face, ...]]:
    """Faces for `observe`, open while the block runs. Raises Unsupported, with a remedy, for what cannot be opened."""
    with ExitStack() as stack:
        faces: dict[str, Face] = {}
        if settings.triage.enabled and any(probe.focusable for probe in agent.probes.opened.values()):
            faces["triage"] = _close_look(stack, agent, settings)
        if settings.serving.enabled:
            faces["serving"] = _socket(stack, agent, settings, version)
        if settings.cluster.enabled:
            faces["cluster"] = _cluster(stack, agent, settings)
        if settings.profiles.enabled:
            faces["profiles"] = _profiles(stack, agent, settings)
        yield tuple(_alone(name, face, agent.lost) for name, face in faces.items())


def _alone(name: str, face: Face, lost: Counter[str]) -> Face:
    """The face, whose failures end neither the tick nor another face: logged once in a row, and counted."""
    place, is_failing = f"{name}.ticks", False

    def call(window: Window, verdicts: Sequence[Verdict]) -> None:
        nonlocal is_failing
        try:
            face(window, verdicts)
        except Exception:  # noqa: BLE001 - whatever it is, measuring goes on
            lost[place] += 1
            if not is_failing:
                _log.exception("%s failed in this tick; trying again", name)
            is_failing = True
        else:
            is_failing = False

    return call


def _standing(agent: "Agent") -> tuple[Verdict, ...]:
    return agent.judging.open_verdicts if agent.judging else ()


def _close_look(stack: ExitStack, agent: "Agent", settings: "AgentSettings") -> Face:
    triaging = FocusControl(settings.triage, agent.probes.opened)
    stack.callback(triaging.close)
    agent.also.append(triaging.reading)

    def look(window: Window, _verdicts: Sequence[Verdict]) -> None:
        nobody = np.zeros(len(window.cgroups), dtype=np.bool_)
        triaging.after_tick(window, agent.judging.judge.suspects if agent.judging else nobody)

    return look


def _socket(stack: ExitStack, agent: "Agent", settings: "AgentSettings", version: str) -> Face:
    try:
        from koordlet.serving.server import AgentServer
    except ImportError as error:
        raise Unsupported(f"[serving] needs grpcio ({error})", "pip install 'koord[grpc]'") from error
    from koordlet.serving.socket_file import SocketUnusable
    from koordlet.serving.status import AgentStatus, capabilities

    able = capabilities(agent.capabilities(), agent.unsupported, agent.probes.partly)
    status = AgentStatus(platform.node(), version, platform.release(), settings.interval_seconds, able)
    server = AgentServer(settings.serving, status)
    try:
        server.start()
    except SocketUnusable as error:
        raise Unsupported(str(error), error.remedy) from error
    stack.callback(server.close)
    ticks = 0

    def serve(window: Window, verdicts: Sequence[Verdict]) -> None:
        nonlocal ticks
        ticks += 1
        seconds = window.last.wall_ns / 1e9
        now = replace(status, ticks=ticks, last_tick_seconds=seconds, cgroups=len(window.cgroups))
        server.update(now, verdicts, _standing(agent))
        agent.lost["serving.verdicts"] = server.hub.dropped

    return serve


def _cluster(stack: ExitStack, agent: "Agent", settings: "AgentSettings") -> Face:
    try:
        from cluster import NotConfigured
        from koordlet.kube.reporter import Reporter, connect, node_name
        from koordlet.kube.rules import ClusterRules
    except ImportError as error:
        raise Unsupported(f"[cluster] needs the Kubernetes client ({error})", "pip install 'koord[cluster]'") from error
    try:
        client = connect(settings.cluster)
    except NotConfigured as error:
        raise Unsupported(str(error), "set [cluster] kubeconfig, or [cluster] enabled = false") from error
    stack.callback(client.close)
    reporter = Reporter(client, settings.cluster, node_name(settings.cluster))
    reporter.start()
    stack.callback(reporter.close)
    judge = agent.judging.judge if agent.judging else None
    rules = None
    if settings.cluster.rules and judge:
        rules = ClusterRules(client, frozenset(discover_symptoms()), judge.settings.rules)
        rules.start()
        stack.callback(rules.close)

    def report(window: Window, verdicts: Sequence[Verdict]) -> None:
        reporter.update(verdicts, _standing(agent), window.last.wall_ns / 1e9)
        counters = reporter.counters()
        agent.lost["cluster.events"] = counters["events_lost"]
        agent.lost["cluster.events_held_back"] = counters["events_held_back"]
        agent.lost["cluster.annotation"] = counters["annotation_failures"]
        if rules and judge:
            newest = rules.newest()
            if newest is not None:
                judge.replace_rules(newest)
            agent.lost["cluster.rules"] = rules.errors

    return report


def _profiles(stack: ExitStack, agent: "Agent", settings: "AgentSettings") -> Face:
    from koordlet.profiles.writer import ProfileWriter

    judged_by = agent.judging.judge.settings if agent.judging else None
    span_seconds = judged_by.span_seconds if judged_by else settings.interval_seconds
    try:
        profiles = ProfileWriter(settings.profiles, judged_by.node_type if judged_by else "", span_seconds)
    except OSError as error:
        raise Unsupported(f"profiles cannot be kept: {error}", "set another [profiles] directory") from error
    stack.callback(profiles.close)

    def keep(_window: Window, _verdicts: Sequence[Verdict]) -> None:
        recent = agent.store.window(span_seconds)
        if recent is not None:
            profiles.after_tick(recent, [verdict.victim for verdict in _standing(agent)])
        agent.lost["profiles.rows"] = profiles.lost_rows

    return keep
