"""The loop of `koordlet run`: tick at fixed times, tell every face, end when asked to or when nobody listens."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import TYPE_CHECKING

from api.verdicts import Verdict, to_json
from api.window import Window
from koordlet.outputs.line_stream import LineStream, ReaderGone
from koordlet.outputs.verdict_log import VerdictLog

if TYPE_CHECKING:
    from koordlet.agent.agent import Agent

_log = logging.getLogger(__name__)

Face = Callable[[Window, Sequence[Verdict]], None]
"""Told after each tick: the newest frames and the verdicts that opened, changed or closed."""


def observe(agent: "Agent", interval_seconds: float, faces: Sequence[Face], stop: Event) -> None:
    """Run until `stop` is set or a face finds its reader gone; one bad tick is logged once in a row and counted."""
    failures = 0
    for _ in _ticks(interval_seconds, stop):
        try:
            _tick(agent, interval_seconds, faces)
            failures = 0
        except ReaderGone:
            _log.info("nobody reads standard output any more")
            return
        except Exception:  # noqa: BLE001 - one bad tick must not end the agent; it is logged once in a row
            failures += 1
            agent.lost["agent.ticks"] += 1
            if failures == 1:
                _log.exception("a tick failed; trying again")


def _tick(agent: "Agent", interval_seconds: float, faces: Sequence[Face]) -> None:
    agent.tick()
    window = agent.store.window(interval_seconds)
    if window is not None:
        for face in faces:
            face(window, agent.verdicts)


def _ticks(interval_seconds: float, stop: Event) -> Iterator[None]:
    """Yield at fixed times; a late tick is not made up for."""
    due = time.monotonic()
    while not stop.is_set():
        yield
        due = max(due + interval_seconds, time.monotonic())
        stop.wait(max(due - time.monotonic(), 0))


def json_lines(agent: "Agent", descriptor: int) -> Face:
    """Verdicts as JSON, one object a line; raises ReaderGone from the tick after the reader went."""
    stream = LineStream(descriptor)

    def tell(_window: Window, verdicts: Sequence[Verdict]) -> None:
        stream.write(map(to_json, verdicts))
        agent.lost["verdicts.stdout"] = stream.dropped

    return tell


def log_lines(name_of: Callable[[str], str]) -> Face:
    """Verdicts as sentences in the log."""
    sayings = VerdictLog(name_of)

    def tell(_window: Window, verdicts: Sequence[Verdict]) -> None:
        for level, line in sayings.lines(verdicts):
            _log.log(level, "%s", line)

    return tell
