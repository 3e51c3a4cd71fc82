"""The loop of `koordlet run`: at fixed times collect, judge, control, and hand the tick to the sinks."""

import gc
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from typing import Protocol

from api.frame import Frame
from api.verdicts import Verdict
from api.window import Window
from detector.breaks import no_breaks
from koordlet.agent.detection import Detection
from koordlet.agent.entitled_parts import EntitledParts
from koordlet.agent.frame_store import FrameStore
from koordlet.agent.sinks import ReaderGone, Sink, isolated
from koordlet.host.scheduling import let_others_first
from koordlet.tick import Tick

_log = logging.getLogger(__name__)

_SETTLED_TICKS = 5
"""Ticks after which most of what the agent keeps for life is there."""

_LEAST_SPLIT_SECONDS = 1.0
"""Intervals shorter than this are soon over."""

_EARLY_APART_SECONDS = 5.0
"""Least time between two early ticks: losses that come and go cost no more than a tenth of a tick more a second."""


class FrameSource(Protocol):
    """The part of `Agent` that the loop needs."""

    @property
    def store(self) -> FrameStore:
        """Recent frames."""

    @property
    def lost(self) -> Counter[str]:
        """Losses by place, reported with the next frame."""

    def collect(self) -> Frame:
        """Measure once and keep the frame."""


class AgentLoop:
    """The steps of a tick in their order. Judging, control and each sink are optional, and fail without the others."""

    def __init__(
        self,
        source: FrameSource,
        *,
        detection: Detection | None = None,
        control: Sink | None = None,
        judged: Mapping[str, Sink] | None = None,
        parts: EntitledParts | None = None,
        sinks: Mapping[str, Sink] | None = None,
        between: Callable[[], None] = no_breaks,
    ) -> None:
        """`control` acts on the tick before any sink reports it; a sink's failures are counted under its name. `parts`
        splits losses by what control has seen; sinks in `judged` get verdicts as judged, which a replay gives again.

        `between` is called between the steps, so that a tick may be spread.
        """
        self._source = source
        self._between = between
        self._detection = detection
        self._control = isolated("control", control, source.lost) if control else None
        self._parts = parts
        self._split = isolated("shares", parts.take, source.lost) if parts else None
        self._judged = [isolated(name, sink, source.lost) for name, sink in (judged or {}).items()]
        self._sinks = [isolated(name, sink, source.lost) for name, sink in (sinks or {}).items()]

    def tick(self) -> None:
        """One tick; the first one has no pair of frames yet and goes no further than the judge."""
        frame = self._source.collect()
        self._between()
        verdicts = self._judge(frame)
        window = self._source.store.window()
        if window is None:
            return
        self._between()
        tick = self._tick_of(window, verdicts)
        self._between()
        if self._control is not None:
            self._control(tick)
        for sink in self._judged:
            sink(tick)
        if self._parts is not None and self._split is not None:
            self._split(tick)
            tick = self._parts.of(tick)
        for sink in self._sinks:
            self._between()
            sink(tick)

    def run(self, interval_seconds: float, stop: Event) -> None:
        """Tick until `stop` is set or a reader is gone; a tick without a frame is logged once in a row and counted.

        The calling thread lets others go first from then on (`koordlet.host.scheduling`): a tick is long and not
        urgent. What must be prompt has threads of its own.
        """
        let_others_first()
        failures = 0
        for number, _ in enumerate(_due(interval_seconds, stop, self._is_next_decisive)):
            if number == _SETTLED_TICKS:
                gc.collect()
                gc.freeze()  # later collections pass over what the start made: tens of milliseconds amid a tick
            try:
                self.tick()
                failures = 0
            except ReaderGone:
                _log.info("the reader of standard output is gone")
                return
            except Exception:  # noqa: BLE001 - one bad tick must not end the agent; it is logged once in a row
                failures += 1
                self._source.lost["agent.ticks"] += 1
                if failures == 1:
                    _log.exception("a tick failed; trying again")

    def _is_next_decisive(self) -> bool:
        return self._detection is not None and self._detection.is_next_decisive

    def _judge(self, frame: Frame) -> Sequence[Verdict]:
        if self._detection is None:
            return ()
        verdicts = self._detection.step(frame, self._between)
        for place, count in self._detection.lost.items():
            self._source.lost[place] = count
        return verdicts

    def _tick_of(self, window: Window, verdicts: Sequence[Verdict]) -> Tick:
        if self._detection is None:
            return Tick.of(window)
        return Tick.of(window, verdicts, self._detection.open_verdicts, self._detection.turnarounds)


def _due(interval_seconds: float, stop: Event, is_next_decisive: Callable[[], bool]) -> Iterator[None]:
    """Yield at fixed times until `stop` is set; a late tick is not made up for.

    Where the next tick will tell whether a loss that was just seen lasts, it comes after half the interval, at most a
    second, and those after it are counted from there.
    """
    due, may_be_early = time.monotonic(), 0.0
    while not stop.is_set():
        yield
        step = interval_seconds
        if step >= _LEAST_SPLIT_SECONDS and due >= may_be_early and is_next_decisive():
            step = min(step / 2, 1.0)
            may_be_early = due + _EARLY_APART_SECONDS
        due = max(due + step, time.monotonic())
        stop.wait(max(due - time.monotonic(), 0))
