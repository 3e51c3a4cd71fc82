"""`koordlet run` behind its flags: settings become an agent, its judge, its control loop and its sinks."""

import logging
import sys
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from api.plugin import PluginError, Unsupported
from api.programs.heap import bound_heap
from api.settings import SettingsError
from api.stacks import StackEvidence
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.agent import Agent
from koordlet.agent.baseline_store import BaselineStore
from koordlet.agent.detection import Detection
from koordlet.agent.entitled_parts import EntitledParts
from koordlet.agent.loop import AgentLoop
from koordlet.agent.recorder import Recorder
from koordlet.agent.service_notices import ServiceNotices
from koordlet.agent.signals import until_signalled
from koordlet.agent.sinks import Sink
from koordlet.commands.reload import Reload
from koordlet.commands.startup import (
    USAGE_ERROR,
    die,
    judge_settings_of,
    open_agent,
    program_facts,
    program_version,
    require_root,
)
from koordlet.config import AgentSettings
from koordlet.control.control_loop import ControlLoop, open_control_loop, with_enforcement
from koordlet.control.runtime_hooks import open_runtime_hooks
from koordlet.control.strategy_runner import StrategyRunner, open_strategies
from koordlet.enforcer.journal import JournalError
from koordlet.hooks.decide import HookRules
from koordlet.host.files import HostTree
from koordlet.host.scheduling import Breaks
from koordlet.host.service_manager import tell_systemd
from koordlet.identity.pods import no_pod_facts
from koordlet.outputs.cluster_links import links_of
from koordlet.outputs.node_reports import open_node_facts
from koordlet.outputs.outputs import open_sinks
from koordlet.outputs.verdict_lines import json_lines, log_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from koordlet.commands.cluster_mode import ClusterMode
    from koordlet.evidence.capture import StackCapture
    from koordlet.kubelet.source import PodSource

_log = logging.getLogger("koordlet")

HANDOVER_SECONDS = 60.0
"""Time for a handover during a rollout of the agent's DaemonSet."""
_SHOWN_STACKS = 3
"""Measurements of stacks that the node page shows, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The flags of `koordlet run`."""

    standalone: bool
    node: str = ""
    kubeconfig: str = ""
    config: Path | None = None
    """Settings file, for SIGHUP."""
    daemonset: str = ""
    """Namespace/name of the DaemonSet that runs this agent."""
    as_objects: bool
    """Verdicts on stdout instead of the log."""
    record: Path | None
    enforce: bool
    verbose: bool


def run_agent(settings: AgentSettings, config: Path | None, flags: RunFlags, *, only_check: bool) -> None:
    """Run until stopped; with `only_check` only validate the settings. Exits where the agent cannot run."""
    read = settings
    if flags.standalone and settings.cluster.enabled:
        die(
            f"{config}: [cluster] enabled is true, but with --standalone no pods are known that could be reported",
            hint="leave --standalone out, or set [cluster] enabled = false",
            code=USAGE_ERROR,
        )
    if flags.record is not None:
        recording = msgspec.structs.replace(settings.recording, enabled=True, directory=str(flags.record))
        settings = msgspec.structs.replace(settings, recording=recording)
    settings = with_enforcement(settings, enforce=flags.enforce)
    judge_settings = judge_settings_of(settings, config)
    try:
        live = settings.cluster.node_slo and _may_report(settings, flags)
        strategies = open_strategies(settings.strategies, str(config or "settings"), live=live)
        HookRules(settings.hooks.features)
    except (SettingsError, PluginError) as error:
        die(str(error), code=USAGE_ERROR)
    if only_check:
        click.echo("settings are valid")
        return
    cluster = None if flags.standalone else _find_cluster(settings, flags)
    if cluster is not None:
        settings = cluster.settings
    if strategies is not None and not settings.cluster.enabled:
        strategies.answered()
    require_root()
    bound_heap()
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if flags.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    with ExitStack() as stack:
        detection = _open_detection(settings, judge_settings) if judge_settings else None
        if detection is not None:
            stack.callback(detection.close)
        source = stack.enter_context(cluster.open_source()) if cluster else None
        agent = open_agent(settings, source)
        stack.callback(agent.close)
        try:
            _run(agent, detection, strategies, settings, flags, source, read)
        except Unsupported as reason:
            die(reason.reason, hint=reason.remedy)
    _log.info("stopped; every probe is detached")


def _may_report(settings: AgentSettings, flags: RunFlags) -> bool:
    """Whether the agent will report: in a cluster, unless the settings forbid it."""
    return not flags.standalone and settings.cluster.enabled is not False


def _run(
    agent: Agent,
    detection: Detection | None,
    strategies: StrategyRunner | None,
    settings: AgentSettings,
    flags: RunFlags,
    source: "PodSource | None",
    read: AgentSettings,
) -> None:
    """Open control loop and sinks, run the loop; settings are restored before any sink is closed."""
    with ExitStack() as stack:
        stop = stack.enter_context(until_signalled(reloads=True))
        node = stack.enter_context(open_node_facts(settings, source.table, source.config)) if source else None
        links = links_of(settings, strategies, source, node.device_use if node else dict, node.node if node else None)
        optional = stack.enter_context(open_sinks(agent, detection, settings, program_version(), links))
        _log_sources(agent, settings)
        control = _open_control(agent, strategies, settings, source)
        stack.callback(control.close)
        control.name_of = agent.title_of
        control.reports = links.reports if settings.cluster.enabled else None
        sinks: dict[str, Sink] = {}
        judged: dict[str, Sink] = {}
        if source is not None and settings.cluster.enabled and settings.enforcer.evict:
            from koordlet.enforcer.evictions.opening import open_pod_evictor
            from koordlet.kube.reporter import connect

            evictor = stack.enter_context(open_pod_evictor(connect(settings.cluster), settings.cluster.node_name))
            control.enforcer.evict_pods_by(evictor, source.table)
        if source is not None and node is not None:
            from koordlet.kubelet.tick_sink import TreeChanges, reading_of

            agent.extra_readings.append(lambda: reading_of(source.table(), source.status()))
            sinks["pods"] = TreeChanges(source)
            control.follow_node(node.configuration)
            control.stop_reason_of = node.stop_reason
            tree = HostTree(Path(settings.root))
            hooks = open_runtime_hooks(
                settings,
                tree,
                control,
                source.table,
                in_cluster=True,
                cpus=node.cpus,
                await_pod=source.await_pod,
            )
            stack.callback(hooks.close)
        stacks: deque[StackEvidence] = deque(maxlen=_SHOWN_STACKS)
        if settings.metrics.enabled:
            from koordlet.metrics.server import open_metrics
            from koordlet.node_page.flame import newest

            metrics = open_metrics(
                agent, detection, control, settings, program_version(), lambda: newest(stacks, agent.name_of)
            )
            sinks["metrics"] = stack.enter_context(metrics)
        if flags.as_objects:
            judged["json"] = json_lines(sys.stdout.fileno(), agent.lost)
        else:
            sinks["log"] = log_lines(str if flags.verbose else agent.name_of)
        if detection is not None and (capture := _open_stacks(agent, detection, settings, stacks.append)) is not None:
            stack.callback(capture.close)
            sinks["stacks"] = capture.step
        sinks["reload"] = Reload(flags.config, read, flags.enforce, stop, control, detection, strategies).step
        sinks["service manager"] = ServiceNotices().step
        agent.between = Breaks()
        control.take_breaks(agent.between)
        agent.extra_readings.append(control.reading)
        loop = AgentLoop(
            agent,
            detection=detection,
            control=control.step,
            judged=judged,
            parts=EntitledParts(control.entitled_part),
            sinks=sinks | optional,
            between=agent.between,
        )
        try:
            loop.run(settings.interval_seconds, stop)
        finally:
            tell_systemd("STOPPING=1")
            control.close(handover_seconds=_handover_seconds(settings, flags, control) if stop.is_planned else 0.0)


def _handover_seconds(settings: AgentSettings, flags: RunFlags, control: ControlLoop) -> float:
    """Time for a successor to take actions over: none where none is in sight, or where the guardian dies with us."""
    chosen = settings.enforcer.handover_seconds
    if not settings.enforcer.enabled or settings.enforcer.dry_run or chosen == 0:
        return 0.0
    if control.guardian is None or not control.guardian.outlives_agent:
        return 0.0
    if chosen is not None:
        return chosen
    if not flags.daemonset:
        return 0.0
    from koordlet.kube.rollout import key_of, rollout_in_sight

    try:
        key = key_of(flags.daemonset)
    except ValueError as error:
        _log.warning("--daemonset: %s; actions are restored", error)
        return 0.0
    return HANDOVER_SECONDS if rollout_in_sight(key, settings.cluster.kubeconfig) else 0.0


def _open_detection(settings: AgentSettings, judge_settings: JudgeSettings) -> Detection:
    store = baselines = None
    if settings.detection.baselines_file:
        store = BaselineStore(Path(settings.detection.baselines_file), settings.detection.save_seconds)
        baselines = store.load(judge_settings.baselines)
    return Detection(Judge(judge_settings, baselines), _recorder(settings), store)


def _find_cluster(settings: AgentSettings, flags: RunFlags) -> "ClusterMode":
    from koordlet.commands.cluster_mode import find_cluster_mode
    from koordlet.kubelet.opening import NothingConfigured

    try:
        return find_cluster_mode(settings, node=flags.node, kubeconfig=flags.kubeconfig)
    except NothingConfigured as error:
        die(error.reason, hint=error.remedy, code=USAGE_ERROR)


def _open_control(
    agent: Agent, strategies: StrategyRunner | None, settings: AgentSettings, source: "PodSource | None"
) -> ControlLoop:
    tripwire = None
    if settings.detection.enabled:
        tripwire = getattr(agent.probes.opened.get("cpu"), "tripwire", None)
    facts_of = no_pod_facts if source is None else lambda uid: source.table().of_uid(uid)
    try:
        control = open_control_loop(settings, HostTree(Path(settings.root)), tripwire, strategies, facts_of)
    except JournalError as error:
        die(str(error), hint="set [enforcer] state_dir to a directory that the agent may write")
    if source is not None:
        control.kubelet_policy_of = source.policy
        control.pods_known = lambda: source.table().generation > 0
    return control


def _recorder(settings: AgentSettings) -> Recorder | None:
    if not settings.recording.enabled:
        return None
    return Recorder(settings.recording, {name: str(fact) for name, fact in program_facts().items()})


def _open_stacks(
    agent: Agent, detection: Detection, settings: AgentSettings, show: "Callable[[StackEvidence], None]"
) -> "StackCapture | None":
    """Stacks of verdicts, for the recording and to `show`: None where nothing is recorded or the kernel takes no
    stacks."""
    source = agent.probes.opened.get("stacks")
    if detection.recorder is None or source is None or not settings.recording.stacks:
        return None
    from koordlet.evidence.capture import BREAK_SECONDS, StackCapture, StackTaker
    from probes.stacks import Stacks

    assert isinstance(source, Stacks)
    tree, mount = HostTree(Path(settings.root)), agent.hierarchies.cpu
    taker = StackTaker(source, tree, mount, lambda: Breaks(break_seconds=BREAK_SECONDS))
    recorder = detection.recorder

    def keep(evidence: StackEvidence) -> None:
        recorder.keep_stacks(evidence)
        show(evidence)

    return StackCapture(taker, keep)


def _log_sources(agent: Agent, settings: AgentSettings) -> None:
    for name, reason in sorted(agent.unsupported.items()):
        _log.info("not measured: %s: %s", name, reason.reason)
    _log.info(
        "measuring with %s, every %g s",
        ", ".join(sorted(agent.probes.opened)) or "kernel counters only",
        settings.interval_seconds,
    )
