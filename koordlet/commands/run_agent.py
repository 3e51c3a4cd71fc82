"""`koordlet run` behind its flags: settings become an agent, its judge, its protection and its faces."""

import logging
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from api.plugin import Unsupported
from api.settings import SettingsError
from api.verdicts import Verdict
from api.window import Window
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.agent import Agent
from koordlet.agent.baseline_store import BaselineStore
from koordlet.agent.detection import Detection
from koordlet.agent.loop import Face, json_lines, log_lines, observe
from koordlet.agent.recorder import Recorder
from koordlet.agent.signals import until_signalled
from koordlet.commands.startup import (
    ASKED_WRONGLY,
    die,
    judge_settings_of,
    open_agent,
    program_facts,
    program_version,
    require_root,
)
from koordlet.config import AgentSettings
from koordlet.control.control_loop import ControlLoop, open_control_loop, with_enforcement
from koordlet.control.strategy_runner import StrategyRunner, open_strategies
from koordlet.enforcer.journal import JournalError
from koordlet.host.files import HostTree
from koordlet.outputs.outputs import outlets

_log = logging.getLogger("koordlet")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The flags of `koordlet run`."""

    standalone: bool
    as_objects: bool
    """Verdicts on stdout instead of the log."""
    record: Path | None
    enforce: bool
    verbose: bool


def run_agent(settings: AgentSettings, config: Path | None, wish: RunFlags, *, only_check: bool) -> None:
    """Until stopped; `only_check` says whether the settings are valid and no more. Leaves where it cannot run."""
    if wish.record is not None:
        recording = msgspec.structs.replace(settings.recording, enabled=True, directory=str(wish.record))
        settings = msgspec.structs.replace(settings, recording=recording)
    settings = with_enforcement(settings, enforce=wish.enforce)
    to_judge_by = judge_settings_of(settings, config)
    try:
        strategizing = open_strategies(settings.strategies, str(config or "settings"))
    except SettingsError as error:
        die(str(error), code=ASKED_WRONGLY)
    if only_check:
        click.echo("settings are valid")
        return
    if not wish.standalone:
        die("only standalone operation is available", hint="add --standalone", code=ASKED_WRONGLY)
    require_root()
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if wish.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    agent = open_agent(settings, _judging(settings, to_judge_by) if to_judge_by else None)
    try:
        with until_signalled() as stop, outlets(agent, settings, program_version()) as more:
            _say_what_is_measured(agent, settings)
            told = (
                json_lines(agent, sys.stdout.fileno())
                if wish.as_objects
                else log_lines(str if wish.verbose else agent.name_of)
            )
            with _protecting(agent, settings, strategizing) as protection:
                faces = (*_protect(agent, protection), *_serve(agent, settings, protection), told, *more)
                observe(agent, settings.interval_seconds, faces, stop)
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy)
    finally:
        agent.close()
    _log.info("stopped; every probe is detached")


def _judging(settings: AgentSettings, to_judge_by: JudgeSettings) -> Detection:
    keeper = baselines = None
    if settings.detection.baselines_file:
        keeper = BaselineStore(Path(settings.detection.baselines_file), settings.detection.save_seconds)
        baselines = keeper.load(to_judge_by.baselines)
    return Detection(Judge(to_judge_by, baselines), _recorder(settings), keeper)


@contextmanager
def _protecting(
    agent: Agent, settings: AgentSettings, strategizing: StrategyRunner | None
) -> Iterator[ControlLoop | None]:
    """What answers verdicts, and puts everything back at the end; None without a judge."""
    if agent.judging is None:
        yield None
        return
    wire = getattr(agent.probes.opened.get("cpu"), "tripwire", None)
    try:
        protection = open_control_loop(settings, HostTree(Path(settings.root)), wire, strategizing)
    except JournalError as error:
        die(str(error), hint="set [enforcer] state_dir to a directory that the agent may write")
    try:
        yield protection
    finally:
        protection.close()


def _protect(agent: Agent, protection: ControlLoop | None) -> tuple[Face, ...]:
    judging = agent.judging
    if protection is None or judging is None:
        return ()
    return (lambda window, _told: protection.tick(window, judging.open_verdicts, judging.turnarounds),)


def _recorder(settings: AgentSettings) -> Recorder | None:
    if not settings.recording.enabled:
        return None
    return Recorder(settings.recording, {name: str(fact) for name, fact in program_facts().items()})


def _say_what_is_measured(agent: Agent, settings: AgentSettings) -> None:
    for name, reason in sorted(agent.unsupported.items()):
        _log.info("not measured: %s: %s", name, reason.reason)
    _log.info(
        "measuring with %s, every %g s",
        ", ".join(sorted(agent.probes.opened)) or "kernel counters only",
        settings.interval_seconds,
    )


def _serve(agent: Agent, settings: AgentSettings, protection: ControlLoop | None) -> tuple[Face, ...]:
    """The metrics endpoint, if it is wanted."""
    if not settings.metrics.enabled:
        return ()
    from prometheus_client import CollectorRegistry, start_http_server

    from koordlet.metrics.actions import ActionMetrics
    from koordlet.metrics.cgroups import CgroupMetrics
    from koordlet.metrics.verdicts import VerdictMetrics

    exposition = CgroupMetrics(
        settings.metrics, agent.path_of, {"version": program_version(), "kernel": platform.release()}
    )
    registry = CollectorRegistry()
    registry.register(exposition)
    judged = VerdictMetrics(settings.metrics.max_verdicts, agent.name_of)
    if agent.judging:
        registry.register(judged)
    acted = ActionMetrics(settings.metrics.max_verdicts, agent.name_of, dry_run=not settings.enforcer.enabled)
    if protection is not None:
        registry.register(acted)
    try:
        server, _thread = start_http_server(settings.metrics.port, settings.metrics.address, registry)
    except OSError as error:
        where = f"{settings.metrics.address}:{settings.metrics.port}"
        die(f"metrics cannot be served on {where}: {error.strerror}", hint="set [metrics] port in the settings file")
    _log.info("metrics on http://%s:%d/metrics", settings.metrics.address, server.server_port)

    def update(window: Window, verdicts: Sequence[Verdict]) -> None:
        exposition.update(window, capabilities=agent.capabilities(), programs=agent.program_rows())
        if agent.judging:
            judged.update(verdicts, agent.judging.open_verdicts, agent.judging.state)
        if protection is not None:
            acted.update(protection, window.cgroups)

    return (update,)
