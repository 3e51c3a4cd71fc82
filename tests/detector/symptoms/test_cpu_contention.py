"""CpuContention: the loss of one tick."""

import pytest

from detector.symptoms.cpu_contention import CpuContention
from tests.detector.symptoms.ticks import MS, lost


def test_waits_behind_neighbours_and_the_kernel_count() -> None:
    grown = {"cpu.wait_neighbour_ns": 300 * MS, "cpu.wait_kernel_ns": 20 * MS}
    assert lost(CpuContention(), grown) == pytest.approx(0.32)
