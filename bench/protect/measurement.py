"""Measurement of one run of one column from its start to its last request: answers, and the work done beside it."""

import time
from collections.abc import Callable
from threading import Event
from typing import Protocol

import numpy as np

from bench.protect.columns import Column
from koordlet.demo.measure import DemoPhase
from koordlet.demo.stage import Stage


class Answers(Protocol):
    """Latencies of requests as they arrive, as `koordlet.demo.stage.Records` has them."""

    @property
    def ended(self) -> bool:
        """Whether the client has ended."""

    def read(self) -> None:
        """Read what is there; never waits."""

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Intended start and latency of each request, in seconds."""


def watch(
    stage: Stage,
    column: Column,
    records: Answers,
    work: Callable[[], int],
    *,
    settle_seconds: float,
    seconds: float,
    stop: Event,
) -> DemoPhase:
    """Run the requests; `work` returns the blocks of best-effort work so far. The time before settling does not
    count."""
    first, last, began, ended = 0, 0, 0.0, 0.0
    start = time.monotonic()
    while not records.ended and not stop.wait(0.25):
        records.read()
        passed = time.monotonic() - start
        if int(passed * 4) % 4 == 0:
            column.look_after(stage)
        if not began and passed >= settle_seconds:
            first, began = work(), time.monotonic()
        if began and passed <= settle_seconds + seconds:
            last, ended = work(), time.monotonic()
    at, latency = records.columns()
    counted = at >= settle_seconds
    span = max(ended - began, 1e-9)
    return DemoPhase(column.name, span, at[counted] - settle_seconds, latency[counted], max(last - first, 0))
