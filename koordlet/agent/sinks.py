"""Sinks of a tick: the callable that takes one, its isolation from the others, and the reader that ends the loop."""

import logging
from collections import Counter
from collections.abc import Callable

from koordlet.tick import Tick

_log = logging.getLogger(__name__)

Sink = Callable[[Tick], None]
"""Takes each tick: metrics, log lines, JSON lines, socket, cluster, profiles."""


class ReaderGone(Exception):
    """The reader of an output has gone, and the agent runs for nothing else; the one failure that ends the loop."""


def isolated(name: str, sink: Sink, lost: Counter[str]) -> Sink:
    """The sink, whose failures cost its own output only: logged once in a row, counted as `<name>.ticks`.

    ReaderGone passes.
    """
    place, is_failing = f"{name}.ticks", False

    def call(tick: Tick) -> None:
        nonlocal is_failing
        try:
            sink(tick)
        except ReaderGone:
            raise
        except Exception:  # noqa: BLE001 - one failing step must not cost the others their tick
            lost[place] += 1
            if not is_failing:
                _log.exception("%s failed in this tick; trying again", name)
            is_failing = True
        else:
            is_failing = False

    return call
