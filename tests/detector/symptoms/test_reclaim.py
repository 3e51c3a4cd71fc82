"""Reclaim: the loss of one tick."""

import pytest

from detector.symptoms.reclaim import Reclaim
from tests.detector.symptoms.ticks import MS, lost


def test_own_allocations_are_taken_off() -> None:
    grown = {"memory.stall_global_ns": 300 * MS, "memory.stall_global_self_ns": 100 * MS}
    assert lost(Reclaim(), grown) == pytest.approx(0.2)
