"""SIGINT, SIGTERM and SIGHUP as an event, for an orderly end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

_ORDERLY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(Event):
    """Set by the first signal that ends the program; `number` is that signal."""

    number: int = 0

    @property
    def is_planned(self) -> bool:
        """True if a service manager asked (SIGTERM): a successor may follow."""
        return self.number == signal.SIGTERM


@contextmanager
def until_signalled() -> Iterator[Stop]:
    """Return an event that the first SIGINT, SIGTERM or SIGHUP sets; the second one has its default effect.

    A SIGHUP that is ignored already (`nohup`) stays ignored.
    """
    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.number = number
        stop.set()
        signal.signal(number, previous[signal.Signals(number)])

    heeded = [number for number in _ORDERLY if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, ask) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
