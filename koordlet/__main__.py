"""The `koordlet` command: run, top, snapshot, doctor. Flags, signals and exit codes live here and nowhere else."""

import json
import logging
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from api.plugin import Unsupported
from api.settings import SettingsError
from api.verdicts import Verdict
from api.window import Window
from detector.judge import Judge, JudgeSettings
from koordlet.agent import Agent
from koordlet.config import AgentSettings, load_settings
from koordlet.demo.command import demo
from koordlet.doctor import as_json, examine, main_job_runs
from koordlet.enforcing.command import restore
from koordlet.enforcing.journal import JournalError
from koordlet.host.cpumodel import cpu_model
from koordlet.host.tree import HostTree
from koordlet.judging import Judging, judge_settings
from koordlet.keeping import BaselineKeeper, look_at
from koordlet.observing import Face, json_lines, log_lines, observe, until_signalled
from koordlet.outlets import outlets
from koordlet.protecting import Protection, acting, open_protection
from koordlet.recorder import Recorder
from koordlet.serving.command import verdicts
from koordlet.snapshot import snapshot
from koordlet.strategizing import Strategizing, open_strategies

FAILED, ASKED_WRONGLY, HOST_CANNOT = 1, 2, 3

_log = logging.getLogger("koordlet")


def die(message: str, *, hint: str = "", code: int = FAILED) -> NoReturn:
    """Say what is wrong and what to do about it, and leave."""
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    sys.exit(code)


def _settings(path: Path | None) -> AgentSettings:
    try:
        return load_settings(path)
    except SettingsError as error:
        die(str(error), code=ASKED_WRONGLY)


def _judge_settings(settings: AgentSettings, path: Path | None) -> JudgeSettings | None:
    """What to judge by; None where detection is switched off."""
    if not settings.detection.enabled:
        if settings.recording.enabled:
            die("recording needs [detection]", hint="set enabled = true there", code=ASKED_WRONGLY)
        return None
    model = cpu_model(HostTree(Path(settings.root)))
    try:
        return judge_settings(settings.detection, cpu_model=model, source=str(path or "settings"))
    except SettingsError as error:
        die(str(error), code=ASKED_WRONGLY)


def _agent(settings: AgentSettings, judging: Judging | None = None) -> Agent:
    try:
        return Agent(settings, judging)
    except SettingsError as error:
        die(str(error), code=ASKED_WRONGLY)
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy, code=HOST_CANNOT)


_config_option = click.option(
    "--config", type=click.Path(path_type=Path), help="Settings file (TOML or YAML); <file>.d/*.toml is laid over it."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="koord")
def main() -> None:
    """See who loses time on this node, to what, and to whom.

    \b
    Examples:
      koordlet top                              live view
      koordlet run --standalone                 observe, log who loses what to whom, serve metrics
      koordlet snapshot --seconds 5 --json      one measurement on stdout
      koordlet doctor                           what this host can measure
    """


def _require_root() -> None:
    if os.geteuid() != 0:
        die("reading the kernel needs root", hint="run it with sudo", code=HOST_CANNOT)


@main.command()
@_config_option
@click.option("--standalone", is_flag=True, help="Without Kubernetes: watch every cgroup of this host.")
@click.option("--json", "as_objects", is_flag=True, help="Verdicts on stdout, one JSON object a line, not in the log.")
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep a recording in this directory ([recording]).",
)
@click.option(
    "--enforce",
    is_flag=True,
    help="Act on culprits as [enforcing] and [response] allow; without it only say in the audit what would be done.",
)
@click.option("--check-config", is_flag=True, help="Validate the settings file and the rules, and exit.")
@click.option("-v", "--verbose", is_flag=True, help="Log full paths, and what each source could not do.")
def run(
    config: Path | None,
    standalone: bool,
    as_objects: bool,
    record: Path | None,
    enforce: bool,
    check_config: bool,
    verbose: bool,
) -> None:
    """Observe until stopped, and with --enforce act. Without it never writes to a cgroup.

    \b
    Examples:
      koordlet run --standalone
      koordlet run --standalone --json | jq -r '[.state, .victim, .cause, .culprits[0].path] | @tsv'
      koordlet run --standalone --record /var/lib/koord/recordings
      koordlet run --standalone --enforce --config /etc/koord/koordlet.toml
      koordlet run --standalone --config /etc/koord/koordlet.toml
      koordlet run --check-config --config koordlet.toml
    """
    settings = _settings(config)
    if record is not None:
        recording = msgspec.structs.replace(settings.recording, enabled=True, directory=str(record))
        settings = msgspec.structs.replace(settings, recording=recording)
    settings = acting(settings, enforce=enforce)
    to_judge_by = _judge_settings(settings, config)
    try:
        strategizing = open_strategies(settings.strategies, str(config or "settings"))
    except SettingsError as error:
        die(str(error), code=ASKED_WRONGLY)
    if check_config:
        click.echo("settings are valid")
        return
    if not standalone:
        die("only standalone operation is available", hint="add --standalone", code=ASKED_WRONGLY)
    _require_root()
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    agent = _agent(settings, _judging(settings, to_judge_by) if to_judge_by else None)
    try:
        with until_signalled() as stop, outlets(agent, settings, _version()) as more:
            _say_what_is_measured(agent, settings)
            told = (
                json_lines(agent, sys.stdout.fileno()) if as_objects else log_lines(str if verbose else agent.name_of)
            )
            with _protecting(agent, settings, strategizing) as protection:
                faces = (*_protect(agent, protection), *_serve(agent, settings, protection), told, *more)
                observe(agent, settings.interval_seconds, faces, stop)
    except Unsupported as reason:
        die(reason.reason, hint=reason.remedy)
    finally:
        agent.close()
    _log.info("stopped; every probe is detached")


def _judging(settings: AgentSettings, to_judge_by: JudgeSettings) -> Judging:
    keeper = baselines = None
    if settings.detection.baselines_file:
        keeper = BaselineKeeper(Path(settings.detection.baselines_file), settings.detection.save_seconds)
        baselines = keeper.load(to_judge_by.baselines)
    return Judging(Judge(to_judge_by, baselines), _recorder(settings), keeper)


@contextmanager
def _protecting(
    agent: Agent, settings: AgentSettings, strategizing: Strategizing | None
) -> Iterator[Protection | None]:
    """What answers verdicts, and puts everything back at the end; None without a judge."""
    if agent.judging is None:
        yield None
        return
    wire = getattr(agent.probes.opened.get("cpu"), "tripwire", None)
    try:
        protection = open_protection(settings, HostTree(Path(settings.root)), wire, strategizing)
    except JournalError as error:
        die(str(error), hint="set [enforcing] state_dir to a directory that the agent may write")
    try:
        yield protection
    finally:
        protection.close()


def _protect(agent: Agent, protection: Protection | None) -> tuple[Face, ...]:
    judging = agent.judging
    if protection is None or judging is None:
        return ()
    return (lambda window, _told: protection.tick(window, judging.open_verdicts, judging.judge.turnarounds),)


def _recorder(settings: AgentSettings) -> Recorder | None:
    if not settings.recording.enabled:
        return None
    return Recorder(settings.recording, {name: str(fact) for name, fact in _program_facts().items()})


def _say_what_is_measured(agent: Agent, settings: AgentSettings) -> None:
    for name, reason in sorted(agent.unsupported.items()):
        _log.info("not measured: %s: %s", name, reason.reason)
    _log.info(
        "measuring with %s, every %g s",
        ", ".join(sorted(agent.probes.opened)) or "kernel counters only",
        settings.interval_seconds,
    )


def _serve(agent: Agent, settings: AgentSettings, protection: Protection | None) -> tuple[Face, ...]:
    """The metrics endpoint, if it is wanted."""
    if not settings.exposition.enabled:
        return ()
    from prometheus_client import CollectorRegistry, start_http_server

    from koordlet.exposition import Exposition
    from koordlet.exposition_actions import ActionExposition
    from koordlet.exposition_verdicts import VerdictExposition

    exposition = Exposition(settings.exposition, agent.path_of, {"version": _version(), "kernel": platform.release()})
    registry = CollectorRegistry()
    registry.register(exposition)
    judged = VerdictExposition(settings.exposition.max_verdicts, agent.name_of)
    if agent.judging:
        registry.register(judged)
    acted = ActionExposition(settings.exposition.max_verdicts, agent.name_of, dry_run=not settings.enforcing.enabled)
    if protection is not None:
        registry.register(acted)
    try:
        server, _thread = start_http_server(settings.exposition.port, settings.exposition.address, registry)
    except OSError as error:
        where = f"{settings.exposition.address}:{settings.exposition.port}"
        die(f"metrics cannot be served on {where}: {error.strerror}", hint="set [exposition] port in the settings file")
    _log.info("metrics on http://%s:%d/metrics", settings.exposition.address, server.server_port)

    def update(window: Window, verdicts: Sequence[Verdict]) -> None:
        exposition.update(window, capabilities=agent.capabilities(), programs=agent.program_rows())
        if agent.judging:
            judged.update(verdicts, agent.judging.open_verdicts, agent.judging.state)
        if protection is not None:
            acted.update(protection, window.cgroups)

    return (update,)


@main.command(name="snapshot")
@_config_option
@click.option(
    "--seconds", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True, help="How long to measure."
)
@click.option(
    "--json", "as_object", is_flag=True, help="One JSON object (docs/snapshot.schema.json) instead of a table."
)
def snapshot_command(config: Path | None, seconds: float, as_object: bool) -> None:
    """Measure once and print it.

    \b
    Examples:
      koordlet snapshot --seconds 10
      koordlet snapshot --seconds 2 --json | jq '.cgroups[] | {path, wait: .cpu.wait_seconds}'
    """
    _require_root()
    settings = _settings(config)
    agent = _agent(settings)
    measured: dict[str, Any] | None = None
    try:
        with until_signalled() as stop:
            agent.tick(everything=True)
            if not stop.wait(seconds):
                agent.tick(everything=True)
                window = agent.store.window()
                assert window is not None
                measured = snapshot(window, agent.path_of, _host_facts(agent), _reasons(agent))
    finally:
        agent.close()
    if measured is None:
        sys.exit(130)
    if as_object:
        sys.stdout.buffer.write(msgspec.json.encode(measured) + b"\n")
    else:
        from koordlet.table import print_table

        print_table(measured)


def _host_facts(agent: Agent) -> dict[str, Any]:
    return _program_facts() | {"cgroup_version": agent.hierarchies.version}


def _program_facts() -> dict[str, Any]:
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "koord_version": _version(),
    }


def _reasons(agent: Agent) -> dict[str, str]:
    return {name: reason.reason for name, reason in agent.unsupported.items()} | agent.probes.partly


def _version() -> str:
    try:
        return version("koord")
    except PackageNotFoundError:
        return "unknown"


@main.command()
@_config_option
@click.option("--json", "as_object", is_flag=True, help="One JSON object instead of lines.")
def doctor(config: Path | None, as_object: bool) -> None:
    """Say what this host can measure, why not, and what to do about it; exit 0 if the main job can run."""
    findings = examine(_settings(config))
    if as_object:
        click.echo(json.dumps(as_json(findings)))
    else:
        for finding in findings:
            mark = click.style("yes", fg="green") if finding.able else click.style("no ", fg="red")
            click.echo(f"{mark}  {finding.name:<12} {finding.why}")
            if finding.remedy and not finding.able:
                click.echo(f"     {'':<12} -> {finding.remedy}")
    sys.exit(0 if main_job_runs(findings) else HOST_CANNOT)


@main.command()
@_config_option
def top(config: Path | None) -> None:
    """Live view: victims by lost seconds, causes, culprits. Keys: s sort, enter drill in, p pause, q quit."""
    _require_root()
    settings = _settings(config)
    if not sys.stdout.isatty():
        die("top needs a terminal", hint="use `koordlet run --standalone` or `koordlet snapshot`", code=ASKED_WRONGLY)
    from koordlet.top import Verdicts
    from koordlet.top import run as run_top

    logging.getLogger().addHandler(logging.NullHandler())  # a line on stderr would tear the screen
    agent = _agent(settings, _watching(settings, config))

    def next_window() -> Any:
        agent.tick()
        return agent.store.window(60.0)

    verdicts = Verdicts(lambda: agent.judging.open_verdicts if agent.judging else (), agent.name_of)
    try:
        code = run_top(next_window, settings.interval_seconds, verdicts)
    finally:
        agent.close()
    sys.exit(code)


def _watching(settings: AgentSettings, path: Path | None) -> Judging | None:
    """A judge that starts from what a running agent has learned, and leaves saving to it."""
    to_judge_by = _judge_settings(settings, path)
    if to_judge_by is None:
        return None
    learned = look_at(Path(settings.detection.baselines_file), time.time(), to_judge_by.baselines)
    return Judging(Judge(to_judge_by, learned.baselines))


main.add_command(demo)
main.add_command(restore)
main.add_command(verdicts)


if __name__ == "__main__":
    main()
