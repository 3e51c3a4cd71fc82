"""Detection under real load: the agent's verdicts against the ground truth of scenarios.

    sudo .venv/bin/python -m bench.detect [--only NAME]... [--repeat 3] [--json OUT] [--record DIRECTORY]
    .venv/bin/python -m bench.detect report OUT [OUT...]

Runs the scenarios of `bench/detect/scenarios/` one after the other beside a running agent, and prints how often it was
right, how fast, and what simpler rules would have said. Wants two CPUs and a machine without other work; how to read
it is said in docs/detection.md. With `--repeat` all scenarios run once, then all again, so a run that is ended early is
a sample of each; `report` joins runs and prints the tables of docs/detection.md.
"""

import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from bench.detect.claims import Scenario
from bench.detect.kept import as_markdown, read
from bench.detect.losses import as_table, tick_losses
from bench.detect.report import Scored, as_report, as_values, line_of, scored
from bench.detect.runner import run_scenario
from bench.detect.scenarios import SCENARIOS
from bench.detect.subject import Subject, SubjectError
from detector.recording.format import RecordingRefused
from tests.cgroups import CgroupTree

WARM_UP_SECONDS = 3.0


@click.group(invoke_without_command=True)
@click.option("--only", multiple=True, metavar="NAME", help="Run this scenario alone; may be given several times.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=1, show_default=True, help="Times to run all of it.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Keep every figure here.")
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="Draw the figures (.png, .svg).")
@click.option(
    "--record", type=click.Path(file_okay=False, path_type=Path), help="Keep a recording and its labels here."
)
@click.option("--list", "as_list", is_flag=True, help="Name the scenarios and leave.")
@click.pass_context
def main(
    context: click.Context,
    only: tuple[str, ...],
    repeat: int,
    output: Path | None,
    picture: Path | None,
    record: Path | None,
    as_list: bool,
) -> None:
    """Measure detection on scenarios whose truth is known."""
    if context.invoked_subcommand is not None:
        return
    if as_list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:<20} {scenario.about}")
        return
    chosen = _chosen(only)
    if os.geteuid() != 0:
        raise click.ClickException("cgroups, network namespaces and BPF need root")
    if len(os.sched_getaffinity(0)) < 2:
        raise click.ClickException("two CPUs are needed: one for victims, one for those who are innocent")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    runs: list[Scored] = []
    skipped: dict[str, str] = {}
    ended = ""
    try:
        for _ in _run_all(chosen * repeat, runs, skipped, record):
            _keep(runs, skipped, output)
    except KeyboardInterrupt:
        ended = "ended early"
    except SubjectError as error:
        ended = str(error)
    _tell(runs, skipped, output, picture)
    if ended:
        raise click.ClickException(ended)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--recording",
    "recordings",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="What --record kept: print what services lost in clean runs, too. May be given several times.",
)
def report(files: tuple[Path, ...], recordings: tuple[Path, ...]) -> None:
    """Print the runs of one or more files of `--json` together, as the tables of docs/detection.md."""
    kept = []
    for file in files:
        try:
            kept.append(read(file.read_text()))
        except ValueError as error:
            raise click.ClickException(f"{file}: no figures of bench.detect: {error}") from error
    print(as_markdown(kept))
    runs = [run for each in kept for run in each.runs]
    try:
        lost = [each for path in recordings for each in tick_losses(runs, path, _warn)]
    except (RecordingRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    if lost:
        print(f"\n{as_table(lost)}")


def _warn(text: str) -> None:
    click.echo(text, err=True)


def _keep(runs: list[Scored], skipped: dict[str, str], output: Path | None) -> None:
    """Keep every figure so far, so that a run that is killed has lost nothing."""
    if output:
        output.write_text(json.dumps(as_values(runs, skipped, _facts())))


def _tell(runs: list[Scored], skipped: dict[str, str], output: Path | None, picture: Path | None) -> None:
    _keep(runs, skipped, output)
    if picture and runs:
        from bench.detect.draw import draw

        draw(runs, picture)
    if runs:
        print(as_report(runs, skipped))


def _chosen(only: tuple[str, ...]) -> list[Scenario]:
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in only:
        if name not in known:
            raise click.ClickException(f"no scenario {name!r}; there are {', '.join(known)}")
    return [scenario for scenario in SCENARIOS if not only or scenario.name in only]


def _run_all(todo: list[Scenario], runs: list[Scored], skipped: dict[str, str], record: Path | None) -> Iterator[None]:
    """Run them in order; gives control back after each."""
    with (
        tempfile.TemporaryDirectory(prefix=f"koord-detect-{os.getpid()}-") as folder,
        Subject(Path(folder), record) as subject,
    ):
        subject.poll(WARM_UP_SECONDS)
        for number, scenario in enumerate(todo, start=1):
            try:
                runs.append(scored(run_scenario(scenario, subject)))
            except (OSError, TimeoutError) as error:
                skipped[scenario.name] = str(error)
                print(f"[{number}/{len(todo)}] {scenario.name:<18} skipped: {error}", file=sys.stderr)
                continue
            print(f"[{number}/{len(todo)}] {line_of(runs[-1])}", file=sys.stderr)
            if record:
                _keep_labels(record, runs)
            yield


def _keep_labels(record: Path, runs: list[Scored]) -> None:
    import msgspec

    labels = [msgspec.to_builtins(label) for one in runs for label in one.run.labels]
    (record / "labels.json").write_text(json.dumps({"label": labels}))


def _facts() -> dict[str, object]:
    return {
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "cgroup": CgroupTree.detect().version,
        "load_average": os.getloadavg(),
    }


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
