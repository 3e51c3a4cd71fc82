"""SIGINT, SIGTERM and SIGHUP as an event, for an orderly end; SIGHUP also as the request to read the settings again."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

_ORDERLY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(Event):
    """Set by the first signal that ends the program; `number` is that signal."""

    number: int = 0

    def __init__(self) -> None:
        super().__init__()
        self._is_reload_asked = False

    @property
    def is_planned(self) -> bool:
        """True if a service manager asked (SIGTERM): a successor may follow."""
        return self.number == signal.SIGTERM

    def ask_reload(self) -> None:
        """Ask for the settings to be read again."""
        self._is_reload_asked = True

    def take_reload(self) -> bool:
        """Return whether that was asked since the last call."""
        asked, self._is_reload_asked = self._is_reload_asked, False
        return asked


@contextmanager
def until_signalled(*, reloads: bool = False) -> Iterator[Stop]:
    """Return an event that the first SIGINT, SIGTERM or SIGHUP sets; the second one has its default effect.

    With `reloads` SIGHUP asks for a reload instead, any number of times, in a program that no terminal controls. A
    SIGHUP that is ignored already (`nohup`) stays ignored.
    """
    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.number = number
        stop.set()
        signal.signal(number, previous[signal.Signals(number)])

    def ask_reload(_number: int, _frame: FrameType | None) -> None:
        stop.ask_reload()

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = dict.fromkeys(_ORDERLY, ask)
    if reloads and not _has_terminal():
        handlers[signal.SIGHUP] = ask_reload
    heeded = [number for number in _ORDERLY if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handlers[number]) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Whether a terminal controls this process, whose loss is a SIGHUP too."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
