"""Pressure: the loss of one tick."""

import pytest

from detector.symptoms.pressure import Pressure
from tests.detector.symptoms.ticks import MS, lost


def test_the_worst_resource_counts_without_own_throttling() -> None:
    grown = {"pressure.cpu_some_us": 500_000, "cpustat.throttled_ns": 400 * MS, "pressure.io_some_us": 200_000}
    assert lost(Pressure(), grown) == pytest.approx(0.2)
