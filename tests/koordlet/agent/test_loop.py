"""The loop of `koordlet run`: the order of its steps, steps that fail, readers that go, and signals."""

import logging
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest

from api.frame import Frame
from api.intents import Intent, Knob
from api.verdict_text import ENTITLED
from api.verdicts import Verdict, VerdictState
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent import loop
from koordlet.agent.detection import Detection
from koordlet.agent.entitled_parts import EntitledParts
from koordlet.agent.frame_store import FrameStore
from koordlet.agent.loop import AgentLoop
from koordlet.agent.signals import until_signalled
from koordlet.agent.sinks import ReaderGone, Sink
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.control_loop import ControlLoop
from koordlet.control.node_view import NodeViewBuilder
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.host.knobs.knobs import Knobs
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import NodeView
from koordlet.tick import Tick
from tests.frames import make_frame
from tests.koordlet.enforcer.hosts import FakeHost

CGROUPS = {1: "/web", 2: "/batch"}


class Frames:
    """A source of frames in which /batch delays /web; some of them fail, and the last one asks to stop."""

    def __init__(self, count: int, failing: Sequence[int] = ()) -> None:
        self.store = FrameStore(10.0, 1.0)
        self.lost: Counter[str] = Counter()
        self.stop = Event()
        self.ticks = 0
        self._count, self._failing = count, failing

    def collect(self) -> Frame:
        self.ticks += 1
        if self.ticks == self._count:
            self.stop.set()
        if self.ticks in self._failing:
            raise OSError("torn")
        lost_ns = self.ticks * 300_000_000
        columns = {"cpu.wait_neighbour_ns": [lost_ns, 0], "cpustat.usage_ns": [0, 0]}
        frame = make_frame(float(self.ticks), CGROUPS, columns, {(1, 2): lost_ns})
        self.store.append(frame)
        return frame


def run(frames: Frames, *, judge: bool = False, control: Sink | None = None, **sinks: Sink) -> None:
    detection = Detection(Judge(JudgeSettings())) if judge else None
    AgentLoop(frames, detection=detection, control=control, sinks=sinks).run(0.001, frames.stop)


class Seconds:
    """A sink that keeps the time of each tick, and fails in some."""

    def __init__(self, failing: Sequence[float] = (), error: type[Exception] = OSError) -> None:
        self.calls: list[float] = []
        self.ticks: list[Tick] = []
        self._failing, self._error = failing, error

    def __call__(self, tick: Tick) -> None:
        self.calls.append(tick.window.last.monotonic_ns / 1e9)
        if self.calls[-1] in self._failing:
            raise self._error("cannot be written")
        self.ticks.append(tick)


def test_sinks_take_every_tick_that_has_a_pair_of_frames() -> None:
    sink, frames = Seconds(), Frames(4)
    run(frames, log=sink)
    assert sink.calls == [2.0, 3.0, 4.0]
    assert [len(tick.window.frames) for tick in sink.ticks] == [2, 2, 2]
    assert [tick.delta.table.columns["cpu.wait_neighbour_ns"].tolist() for tick in sink.ticks] == [[300_000_000, 0]] * 3


def test_a_tick_carries_what_opened_and_what_is_open() -> None:
    sink, frames = Seconds(), Frames(5)
    run(frames, judge=True, log=sink)
    opened = [tick.window.last.monotonic_ns for tick in sink.ticks if tick.verdicts]
    (verdict,) = sink.ticks[-1].open_verdicts
    assert (verdict.victim, len(opened)) == ("/web", 1)
    assert all(bool(tick.open_verdicts) == (tick.window.last.monotonic_ns >= opened[0]) for tick in sink.ticks)


def test_control_acts_before_any_sink_reports() -> None:
    order: list[str] = []
    run(Frames(2), control=lambda _tick: order.append("control"), metrics=lambda _tick: order.append("metrics"))
    assert order == ["control", "metrics"]


def test_a_control_step_that_fails_as_a_verdict_opens_costs_no_verdict(caplog: pytest.LogCaptureFixture) -> None:
    control, sink, frames = Seconds(failing=(2.0, 3.0, 5.0)), Seconds(), Frames(6)
    run(frames, judge=True, control=control, log=sink)
    assert sink.calls == control.calls == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert [verdict.state for tick in sink.ticks for verdict in tick.verdicts] == [VerdictState.OPEN]
    assert (frames.lost["control.ticks"], frames.lost["agent.ticks"]) == (3, 0)
    assert sum("control failed in this tick" in record.message for record in caplog.records) == 2


def test_a_sink_that_fails_costs_its_own_output_only(caplog: pytest.LogCaptureFixture) -> None:
    broken, other, frames = Seconds(failing=(3.0, 4.0, 6.0), error=RuntimeError), Seconds(), Frames(6)
    run(frames, metrics=broken, log=other)
    assert broken.calls == other.calls == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert (frames.lost["metrics.ticks"], frames.lost["log.ticks"], frames.lost["agent.ticks"]) == (3, 0, 0)
    assert sum("metrics failed in this tick" in record.message for record in caplog.records) == 2


class Capping(Strategy[StrategySettings]):
    section = "extensions.capping"
    settings_type = StrategySettings

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        return [self.set_knob("/batch", Knob.CPU_MAX, "50000 100000", "because")]


def test_strategies_run_without_a_judge(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    for path in CGROUPS.values():
        host.make(path)
    knobs = Knobs(host.tree)
    control = ControlLoop(
        ResponsePolicy(ResponseSettings()),
        host.enforcer(),
        CapabilityReader(host.tree, knobs, "/agent"),
        strategies=StrategyRunner({"capping": Capping()}),
        node_view=NodeViewBuilder(host.tree, knobs),
    )
    frames = Frames(2)
    run(frames, control=control.step)
    assert host.text("/batch", "cpu.max") == "50000 100000"
    assert not frames.lost
    control.close()
    assert host.text("/batch", "cpu.max") == "max 100000"


def test_ticks_without_a_frame_are_counted_and_logged_once_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    frames = Frames(6, failing=(2, 3, 5))
    run(frames)
    assert (frames.ticks, frames.lost["agent.ticks"]) == (6, 3)
    assert sum("a tick failed" in record.message for record in caplog.records) == 2


def test_a_reader_that_goes_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    frames = Frames(100)
    with caplog.at_level(logging.INFO):
        run(frames, json=Seconds(failing=(2.0,), error=ReaderGone))
    assert frames.ticks == 2
    assert "reader of standard output is gone" in caplog.text


def test_the_first_signal_asks_and_the_second_one_is_the_systems_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with until_signalled() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        assert signal.getsignal(signal.SIGTERM) is before
        assert stop.is_planned
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_lost_terminal_ends_the_program_in_order() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with until_signalled() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.wait(10)
        assert not stop.is_planned
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with until_signalled() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_loss_is_split_by_what_control_has_seen_in_the_tick_and_without_it_told_whole() -> None:
    control, sink, judged = Seconds(), Seconds(), Seconds()
    frames = Frames(6)
    seen: list[float] = []

    def part(_verdict: Verdict) -> float:
        seen.append(control.calls[-1])
        if len(seen) > 1:
            raise OSError("torn")
        return 0.1

    detection = Detection(Judge(JudgeSettings()))
    AgentLoop(
        frames,
        detection=detection,
        control=control,
        judged={"json": judged},
        parts=EntitledParts(part),
        sinks={"sink": sink},
    ).run(0.001, frames.stop)
    lines = [(tick.window.last.monotonic_ns / 1e9, line) for tick in sink.ticks for line in tick.verdicts]
    assert seen[0] == lines[0][0]
    assert lines[0][1].evidence[ENTITLED] == 0.1
    assert [verdict.evidence[ENTITLED] for verdict in sink.ticks[-1].open_verdicts] == [0.1]
    assert len(sink.ticks) == 5
    assert not any(ENTITLED in line.evidence for tick in judged.ticks for line in tick.verdicts), "a replay has none"


class Clock(Event):
    """Stands still but for waits; ends after so many ticks."""

    def __init__(self, ticks: int) -> None:
        super().__init__()
        self.now, self._left = 100.0, ticks

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        self._left -= 1
        return self._left <= 0

    def is_set(self) -> bool:
        return self._left <= 0


@pytest.mark.parametrize(
    ("interval", "decisive", "expected"),
    [
        pytest.param(1.0, [], [0, 1, 2, 3, 4], id="calm"),
        pytest.param(1.0, [2], [0, 1, 2, 2.5, 3.5, 4.5], id="once"),
        pytest.param(1.0, range(9), [0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.0], id="at-most-one-in-five-seconds"),
        pytest.param(10.0, [1], [0, 10, 11, 21], id="at-most-a-second-later"),
        pytest.param(0.5, range(9), [0, 0.5, 1, 1.5], id="short-ones-are-not-divided"),
    ],
)
def test_a_tick_that_decides_comes_early(
    monkeypatch: pytest.MonkeyPatch, interval: float, decisive: Sequence[int], expected: Sequence[float]
) -> None:
    """The number of each tick after which the next one is decisive, and the times of the ticks."""
    clock = Clock(len(expected))
    monkeypatch.setattr(loop.time, "monotonic", clock.monotonic)
    ticks: list[float] = []

    class Source:
        lost: ClassVar[Counter[str]] = Counter()

        def collect(self) -> Frame:
            ticks.append(clock.now - 100.0)
            raise OSError("no frame, which the loop counts")

    class Decisive(Detection):
        @property
        def is_next_decisive(self) -> bool:
            return len(ticks) - 1 in decisive

    AgentLoop(Source(), detection=Decisive(Judge(JudgeSettings()))).run(interval, clock)  # type: ignore[arg-type]
    assert ticks == expected
