"""A service that computes for each request, beside best-effort work that computes all the time."""

import time
from threading import Event

import numpy as np

from bench.protect.columns import Column
from koordlet.demo.measure import Phase
from koordlet.demo.stage import Records, Stage

SETTLE_SECONDS = 4.0
"""Between the start of the best-effort work and the first request that counts: a rule acts once a second."""


def measure(stage: Stage, column: Column, *, rate: float, seconds: float, seed: int, stop: Event) -> Phase:
    """One run of one column on a fresh service and fresh best-effort work."""
    stage.start_service()
    column.set_up(stage)
    try:
        warm = Records(stage.start_client(rate, seconds + SETTLE_SECONDS, seed))
        if column.with_batch:
            stage.start_batch()
        blocks, began, ended = 0, 0.0, 0.0
        start = time.monotonic()
        while not warm.ended and not stop.wait(0.25):
            warm.read()
            passed = time.monotonic() - start
            if int(passed * 4) % 4 == 0:
                column.look_after(stage)
            if not began and passed >= SETTLE_SECONDS:
                blocks, began = stage.blocks_done(), time.monotonic()
            if began and passed <= SETTLE_SECONDS + seconds:
                done, ended = stage.blocks_done(), time.monotonic()
        at, latency = warm.columns()
        counted = at >= SETTLE_SECONDS
        return Phase(
            column.name, max(ended - began, 1e-9), at[counted] - SETTLE_SECONDS, latency[counted], done - blocks
        )
    finally:
        column.take_down(stage)
        stage.stop_programs()


def lost(phase: Phase) -> int:
    """Requests without an answer."""
    return int(np.isnan(phase.latency).sum())
