"""SIGINT and SIGTERM as an event, for an orderly end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def until_signalled() -> Iterator[Event]:
    """Return an event that the first SIGINT or SIGTERM sets; the second one has its default effect."""
    stop = Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, previous[signal.Signals(number)])

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
