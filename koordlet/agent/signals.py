"""An orderly end: signals become an event that whoever runs waits for."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def until_signalled() -> Iterator[Event]:
    """An event that SIGINT or SIGTERM sets; what runs goes on to its next wait. A second signal ends at once."""
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
