"""Optional sinks that the settings ask for: focus of the probes, socket, cluster, profiles. Imported only then."""

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from api.plugin import Unsupported
from detector.registry import discover_symptoms
from koordlet.agent.sinks import Sink
from koordlet.host.files import HostTree
from koordlet.tick import Tick
from koordlet.triage.focus import FocusControl

if TYPE_CHECKING:
    from koordlet.agent.agent import Agent
    from koordlet.agent.detection import Detection
    from koordlet.config import AgentSettings
    from koordlet.kubelet.source import PodSource


@contextmanager
def open_sinks(
    agent: "Agent",
    detection: "Detection | None",
    settings: "AgentSettings",
    version: str,
    source: "PodSource | None" = None,
) -> Iterator[dict[str, Sink]]:
    """Sinks by name, open while the block runs. Raises Unsupported, with a remedy, for one that cannot be opened.

    `source` tells of the node's pods and of the kubelet; without it the reports watch the pods themselves.
    """
    with ExitStack() as stack:
        sinks: dict[str, Sink] = {}
        if settings.triage.enabled and any(probe.focusable for probe in agent.probes.opened.values()):
            sinks["triage"] = _triage(stack, agent, detection, settings)
        if settings.serving.enabled:
            sinks["serving"] = _serving(stack, agent, settings, version)
        if settings.cluster.enabled:
            sinks["cluster"] = _cluster(stack, agent, detection, settings, source)
        if settings.profiles.enabled:
            sinks["profiles"] = _profiles(stack, agent, detection, settings)
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
        server.update(now, tick.verdicts, tick.open_verdicts)
        agent.lost["serving.verdicts"] = server.broadcast.dropped

    return serve


def _cluster(
    stack: ExitStack,
    agent: "Agent",
    detection: "Detection | None",
    settings: "AgentSettings",
    source: "PodSource | None",
) -> Sink:
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
    reporter = Reporter(
        client,
        settings.cluster,
        node_name(settings.cluster),
        interval_seconds=settings.interval_seconds,
        turn_seconds=settings.interval_seconds * settings.cgroups.slow_every_ticks,
        prediction=settings.prediction,
        pods=source.table if source else None,
    )
    reporter.start()
    stack.callback(reporter.close)
    if source is not None and (settings.devices.report or settings.topology.report):
        from koordlet.outputs.node_reports import open_node_reports

        tree, node = HostTree(Path(settings.root)), node_name(settings.cluster)
        reports = open_node_reports(client, node, settings, tree, pods=source.table, kubelet=source.config)
        stack.enter_context(reports)
    judge = detection.judge if detection else None
    rules = None
    if settings.cluster.rules and judge:
        rules = ClusterRules(client, frozenset(discover_symptoms()), judge.settings.rules)
        rules.start()
        stack.callback(rules.close)

    def report(tick: Tick) -> None:
        reporter.update(tick)
        counters = reporter.counters()
        agent.lost["cluster.events"] = counters["events_lost"]
        agent.lost["cluster.events_held_back"] = counters["events_held_back"]
        agent.lost["cluster.node_metric"] = counters["report_failures"]
        agent.lost["cluster.checkpoints"] = counters["checkpoint_failures"]
        if rules and judge:
            newest = rules.newest()
            if newest is not None:
                judge.replace_rules(newest)
            agent.lost["cluster.rules"] = rules.errors

    return report


def _profiles(stack: ExitStack, agent: "Agent", detection: "Detection | None", settings: "AgentSettings") -> Sink:
    from koordlet.profiles.writer import ProfileWriter

    judge_settings = detection.judge.settings if detection else None
    span_seconds = judge_settings.span_seconds if judge_settings else settings.interval_seconds
    try:
        profiles = ProfileWriter(settings.profiles, judge_settings.node_type if judge_settings else "", span_seconds)
    except OSError as error:
        raise Unsupported(f"profiles cannot be kept: {error}", "set another [profiles] directory") from error
    stack.callback(profiles.close)

    def record(tick: Tick) -> None:
        recent = agent.store.window(span_seconds)
        if recent is not None:
            profiles.after_tick(recent, [verdict.victim for verdict in tick.open_verdicts])
        agent.lost["profiles.rows"] = profiles.lost_rows

    return record
