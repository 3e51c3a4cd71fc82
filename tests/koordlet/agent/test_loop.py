"""The loop of `koordlet run`: bad ticks, readers that go, and signals."""

import logging
import os
import signal
from collections import Counter
from collections.abc import Sequence
from threading import Event
from typing import Any, cast

import pytest

from api.verdicts import Verdict
from api.window import Window
from koordlet.agent.agent import Agent
from koordlet.agent.frame_store import FrameStore
from koordlet.agent.loop import observe
from koordlet.agent.signals import until_signalled
from koordlet.outputs.line_stream import ReaderGone
from tests.frames import make_frame


class Ticks:
    """What the loop needs of an agent; some ticks fail, and the last one asks to stop."""

    def __init__(self, count: int, failing: Sequence[int] = ()) -> None:
        self.store = FrameStore(10.0, 1.0)
        self.lost: Counter[str] = Counter()
        self.verdicts: tuple[Verdict, ...] = ()
        self.stop = Event()
        self.ticks = 0
        self._count, self._failing = count, failing

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == self._count:
            self.stop.set()
        if self.ticks in self._failing:
            raise OSError("torn")
        self.store.append(make_frame(float(self.ticks), {1: "/web"}, {}))


def run(ticks: Ticks, *faces: Any) -> None:
    observe(cast(Agent, ticks), 0.001, faces, ticks.stop)


def test_faces_hear_of_every_tick_that_has_a_window() -> None:
    heard: list[float] = []
    ticks = Ticks(4)
    run(ticks, lambda window, _verdicts: heard.append(window.last.monotonic_ns / 1e9))
    assert heard == [2.0, 3.0, 4.0]


def test_bad_ticks_are_counted_and_logged_once_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    ticks = Ticks(6, failing=(2, 3, 5))
    run(ticks)
    assert (ticks.ticks, ticks.lost["agent.ticks"]) == (6, 3)
    assert sum("a tick failed" in record.message for record in caplog.records) == 2


def test_a_reader_that_goes_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    def tell(_window: Window, _verdicts: Sequence[Verdict]) -> None:
        raise ReaderGone

    ticks = Ticks(100)
    with caplog.at_level(logging.INFO):
        run(ticks, tell)
    assert ticks.ticks == 2
    assert "nobody reads" in caplog.text


def test_the_first_signal_asks_and_the_second_one_is_the_systems_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with until_signalled() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
