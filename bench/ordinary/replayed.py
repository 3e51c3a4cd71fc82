"""The replayed part: the product's own judge over a series drawn from a recorded live run."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from api.cgroup_path import is_within
from api.frame import Frame
from api.verdicts import Verdict, VerdictState
from bench.ordinary.parts import Blamed, Part, told_of
from bench.ordinary.resampled import Series, Tick, Ticks
from detector.judging.judge import Judge
from detector.recording.files import segment_paths
from detector.recording.replay import replay

TELL_SECONDS = 3600.0
"""Replayed time between two lines of progress."""


def replayed(live: Part, seconds: float, block_seconds: float, seed: int) -> Iterator[Part]:
    """Judge so many seconds drawn from the recording of a live part; gives the part so far after each block.

    Raises ValueError for a recording shorter than two blocks, RecordingRefused or OSError for one that cannot be read.
    """
    judge, last, ticks, in_order = _in_its_own_order(live)
    count = max(round(block_seconds * len(ticks) / live.seconds), 1)
    if len(ticks) < 2 * count:
        raise ValueError(f"{live.recording} holds {len(ticks)} ticks of measured work: less than two blocks")
    print(f"{live.recording}: {in_order} verdicts in its own order, {len(live.told)} live", flush=True)
    series, random = Series(last, ticks), np.random.default_rng(seed)
    told = [told_of(each, live.prefix, each.since) for each in _open_now(judge, live.prefix)]
    for each in told:
        print(f"  0.00 h  {each.rule}, open since the recording: {each.words}", flush=True)
    began_ns, began, next_line = last.monotonic_ns, time.monotonic(), TELL_SECONDS
    passed = 0.0
    while passed < seconds:
        start = int(random.integers(len(ticks) - count + 1))
        joint_ns = series.last.monotonic_ns
        for tick in ticks[start : start + count]:
            after = (series.last.monotonic_ns - joint_ns) / 1e9
            for verdict in _opened(judge.step(series.follow(tick)), live.prefix):
                told.append(told_of(verdict, live.prefix, tick.wall_ns / 1e9, after))
                if told[-1].blamed is not Blamed.FOREIGN:
                    print(f"{passed / 3600:6.2f} h  {told[-1].rule}: {told[-1].words}", flush=True)
        passed = (series.last.monotonic_ns - began_ns) / 1e9
        yield Part(
            kind="replay",
            seconds=passed,
            cgroups=live.cgroups,
            told=tuple(told),
            busy_cpus=live.busy_cpus,
            prefix=live.prefix,
            recording=live.recording,
            span=live.span,
            recorded_seconds=live.seconds,
        )
        if passed >= next_line:
            next_line += TELL_SECONDS
            pace = f"{passed / (time.monotonic() - began):.0f} times as fast"
            print(f"{passed / 3600:6.2f} h of {seconds / 3600:g}, {len(told)} verdicts, {pace}", flush=True)


def _in_its_own_order(live: Part) -> tuple[Judge, Frame, list[Tick], int]:
    """The judge after the recording as it is, its last frame, the ticks of measured work, and how many verdicts there
    were in them."""
    found, taken, ticks = 0, Ticks(), list[Tick]()
    judge: Judge | None = None
    open_before: list[Verdict] = []
    for step in replay(segment_paths(Path(live.recording)), lambda text: click.echo(text, err=True)):
        seconds = step.frame.wall_ns / 1e9
        judge, last, tick = step.judge, step.frame, taken.take(step.frame)
        if seconds > live.span[1]:
            break
        if seconds < live.span[0]:
            open_before = _open_now(judge, live.prefix)
        elif tick is not None:
            ticks.append(tick)
            found += len(_opened(step.verdicts, live.prefix))
    if judge is None:
        raise ValueError(f"{live.recording} holds no frame")
    return judge, last, ticks, found + len(open_before)


def _open_now(judge: Judge, prefix: str) -> list[Verdict]:
    """Verdicts that are open: each counts as one that opens when a measurement begins."""
    return [each for each in judge.open_verdicts if is_within(each.victim, prefix)]


def _opened(verdicts: Sequence[Verdict], prefix: str) -> list[Verdict]:
    return [each for each in verdicts if each.state is VerdictState.OPEN and is_within(each.victim, prefix)]
