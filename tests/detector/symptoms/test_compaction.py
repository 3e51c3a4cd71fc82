"""Compaction: the loss of one tick."""

import pytest

from detector.symptoms.compaction import Compaction
from tests.detector.symptoms.ticks import MS, lost


def test_stalls_count() -> None:
    grown = {"memory.stall_compaction_ns": 70 * MS}
    assert lost(Compaction(), grown) == pytest.approx(0.07)
