"""A service that computes for each request, beside best-effort work that computes all the time."""

from threading import Event

from bench.protect.columns import Column
from bench.protect.measurement import watch
from koordlet.demo.measure import DemoPhase
from koordlet.demo.stage import Records, Stage

SETTLE_SECONDS = 4.0
"""Time between the start of the best-effort work and the first request that counts: a rule acts once a second."""


def measure(stage: Stage, column: Column, *, rate: float, seconds: float, seed: int, stop: Event) -> DemoPhase:
    """Run one column once on a fresh service and fresh best-effort work."""
    stage.start_service()
    column.set_up(stage)
    try:
        records = Records(stage.start_client(rate, seconds + SETTLE_SECONDS, seed))
        if column.with_batch:
            stage.start_batch()
        return watch(
            stage, column, records, stage.blocks_done, settle_seconds=SETTLE_SECONDS, seconds=seconds, stop=stop
        )
    finally:
        column.take_down(stage)
        stage.stop_programs()
