"""Unexplained stalls on memory: what is left of the pressure of a tick."""

import pytest

from detector.symptoms.unexplained_memory import UnexplainedMemory
from tests.detector.symptoms.ticks import MS, lost, tick

PRESSURE, RECLAIM = "pressure.memory_some_us", "memory.stall_global_ns"


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        pytest.param({PRESSURE: 700_000, RECLAIM: 0}, 0.7, id="thrashing"),
        pytest.param({PRESSURE: 700_000, RECLAIM: 900 * MS}, 0.0, id="reclaim"),
        pytest.param({PRESSURE: 700_000, RECLAIM: 0, "memory.stall_own_limit_ns": 500 * MS}, 0.2, id="own limit"),
        pytest.param({PRESSURE: 2_000_000, RECLAIM: 0}, 1.0, id="more than can be"),
    ],
)
def test_what_no_reclaim_explains_is_lost(grown: dict[str, float], expected: float) -> None:
    assert lost(UnexplainedMemory(), grown) == pytest.approx(expected)


def test_without_the_probe_or_without_pressure_nothing_is_left_over() -> None:
    assert UnexplainedMemory().sense(tick(UnexplainedMemory(), {PRESSURE: 900_000})) is None
    assert UnexplainedMemory().sense(tick(UnexplainedMemory(), {RECLAIM: 900 * MS})) is None
