"""BlockioDelay: the loss of one tick."""

import pytest

from detector.symptoms.blockio_delay import BlockioDelay
from tests.detector.symptoms.ticks import MS, lost


def test_time_behind_own_requests_is_taken_off() -> None:
    grown = {"blockio.queue_ns": 900 * MS, "blockio.excess_ns": 100 * MS, "blockio.self_ns": 400 * MS}
    assert lost(BlockioDelay(), grown) == pytest.approx(0.6)
