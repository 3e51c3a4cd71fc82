"""Ordinary work for hours beside the agent: every verdict that blames one of its cgroups for another's loss is counted.

    sudo .venv/bin/python -m bench.ordinary [--minutes 180] [--json A.json] [--record DIRECTORY]
    .venv/bin/python -m bench.ordinary replay A.json [B.json...] [--hours 72] [--json REPLAY.json]
    .venv/bin/python -m bench.ordinary sum A.json B.json REPLAY.json

Fifty cgroups as nodes have them, each far within what the machine can give: web servers with clients, proxies over
loopback, a database that flushes, a bulk sender on a wire of its own, services with heavy tails, cron jobs, batch of
the idle class. The agent is the one users run. Verdicts are counted by rule, and by what they blame: own cgroups, none
or the kernel, and cgroups that are not the bench's. The last are real waits on a machine that does other work too. The
upper bound is of a Poisson rate (`detector/evaluation/intervals.py`), per node and day. A run that is interrupted tells
what it measured so far, and parts of a live run add up.

`replay` judges a long series drawn from recorded live runs by the product's own judge (`bench/ordinary/resampled.py`
says what that shows, and what it cannot). It is never added to the live part.
"""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
import msgspec

from bench.detect.loads import LoadEndedError
from bench.detect.subject import SubjectError
from bench.ordinary.live import live
from bench.ordinary.parts import Part, summary
from bench.ordinary.replayed import replayed

JSON = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="The part goes there, for `sum`."
)
FILES = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE..."
)


Keep = Callable[[Sequence[Part]], None]


@click.group(invoke_without_command=True)
@click.option("--minutes", type=click.FloatRange(0.5, 7 * 24 * 60), default=180.0, show_default=True)
@click.option("--record", type=click.Path(file_okay=False, path_type=Path), help="Keep the agent's recording here.")
@JSON
@click.pass_context
def main(context: click.Context, minutes: float, record: Path | None, json_file: Path | None) -> None:
    """Count verdicts about ordinary work."""
    if context.invoked_subcommand is None:
        _tell(lambda keep: live(minutes, record, lambda part: keep([part])), json_file)


@main.command("replay")
@FILES
@click.option("--hours", type=click.FloatRange(0.05, 10_000), default=72.0, show_default=True, help="Of all together.")
@click.option("--block-minutes", type=click.FloatRange(0.2, 120), default=5.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@JSON
def resample(files: tuple[Path, ...], hours: float, block_minutes: float, seed: int, json_file: Path | None) -> None:
    """Judge a long series drawn from the recordings of live parts."""
    parts = [each for each in _read(files) if each.kind == "live" and each.recording]
    if not parts:
        raise click.ClickException("no live part with a recording: bench.ordinary --record DIRECTORY --json FILE")
    whole = sum(each.seconds for each in parts)

    def judge_all(keep: Keep) -> None:
        done: dict[int, Part] = {}
        for number, part in enumerate(parts):
            wanted = hours * 3600 * part.seconds / whole
            try:
                for so_far in replayed(part, wanted, block_minutes * 60, seed + number):
                    done[number] = so_far
                    keep(list(done.values()))
            except (ValueError, OSError) as error:
                raise click.ClickException(str(error)) from error

    _tell(judge_all, json_file)
    print(summary(parts))


@main.command("sum")
@FILES
def join(files: tuple[Path, ...]) -> None:
    """Join the parts of several runs; live ones and replays apart."""
    print(summary(_read(files)))


def _tell(measure: Callable[[Keep], None], json_file: Path | None) -> None:
    """Measure, and tell what was measured however that ends."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    kept: list[Part] = []

    def keep(parts: Sequence[Part]) -> None:
        kept[:] = parts
        if json_file is not None:
            json_file.write_bytes(msgspec.json.encode(kept))

    ended = ""
    try:
        measure(keep)
    except KeyboardInterrupt:
        ended = "ended early"
    except (SubjectError, LoadEndedError) as error:
        ended = str(error)
    if kept:
        print(summary(kept), flush=True)
    if ended:
        raise click.ClickException(ended)


def _read(files: Sequence[Path]) -> list[Part]:
    parts: list[Part] = []
    for file in files:
        try:
            parts += msgspec.json.decode(file.read_bytes(), type=list[Part])
        except msgspec.DecodeError as error:
            raise click.ClickException(f"{file}: no parts of bench.ordinary: {error}") from error
    return parts


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
