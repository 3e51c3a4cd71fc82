"""OwnMemoryLimit: the loss of one tick."""

import pytest

from detector.symptoms.own_memory_limit import OwnMemoryLimit
from tests.detector.symptoms.ticks import MS, lost


def test_stalls_count() -> None:
    grown = {"memory.stall_own_limit_ns": 70 * MS}
    assert lost(OwnMemoryLimit(), grown) == pytest.approx(0.07)
