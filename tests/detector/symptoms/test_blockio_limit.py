"""BlockioLimit: the loss of one tick."""

import pytest

from detector.symptoms.blockio_limit import BlockioLimit
from tests.detector.symptoms.ticks import MS, lost


def test_held_back_time_counts() -> None:
    grown = {"blockio.throttle_ns": 70 * MS}
    assert lost(BlockioLimit(), grown) == pytest.approx(0.07)
