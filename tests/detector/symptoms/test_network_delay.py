"""NetworkDelay: the loss of one tick."""

import pytest

from detector.symptoms.network_delay import NetworkDelay
from tests.detector.symptoms.ticks import MS, lost


def test_queueing_time_counts() -> None:
    grown = {"net.qdisc_delay_ns": 70 * MS}
    assert lost(NetworkDelay(), grown) == pytest.approx(0.07)
