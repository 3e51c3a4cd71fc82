"""Sinks that write verdicts as lines: sentences in the log, or JSON on a descriptor."""

import logging
from collections import Counter
from collections.abc import Callable

from api.verdicts import to_json
from koordlet.agent.sinks import Sink
from koordlet.outputs.line_stream import LineStream
from koordlet.outputs.verdict_log import VerdictLog
from koordlet.tick import Tick

_log = logging.getLogger(__name__)


def json_lines(descriptor: int, lost: Counter[str]) -> Sink:
    """Verdicts as JSON, one object a line; raises ReaderGone from the tick after the reader went."""
    stream = LineStream(descriptor)

    def write(tick: Tick) -> None:
        stream.write(map(to_json, tick.verdicts))
        lost["verdicts.stdout"] = stream.dropped

    return write


def log_lines(name_of: Callable[[str], str]) -> Sink:
    """Verdicts as sentences in the log."""
    verdict_log = VerdictLog(name_of)

    def write(tick: Tick) -> None:
        for level, line in verdict_log.lines(tick.verdicts):
            _log.log(level, "%s", line)

    return write
