"""Stalled disks: the loss of one tick."""

import pytest

from detector.symptoms.blockio_stalled import BlockioStalled
from tests.detector.symptoms.ticks import MS, lost


def test_each_io_that_is_not_answered_costs_a_second_a_second() -> None:
    assert lost(BlockioStalled(), {"blockio.stalled_ns": 4000 * MS}) == pytest.approx(4.0)
