"""NetworkDelay: the loss of one tick."""

import pytest

from detector.symptoms.network_delay import NetworkDelay
from tests.detector.symptoms.ticks import MS, lost


def test_queueing_time_counts() -> None:
    grown = {"net.qdisc_delay_ns": 70 * MS}
    assert lost(NetworkDelay(), grown) == pytest.approx(0.07)


def test_own_bytes_ahead_and_own_pacing_are_no_delay_by_others() -> None:
    grown = {"net.qdisc_delay_ns": 4800 * MS, "net.qdisc_self_ns": 4800 * MS}
    assert lost(NetworkDelay(), grown) == pytest.approx(0.0)
    grown = {"net.qdisc_delay_ns": 900 * MS, "net.qdisc_self_ns": 600 * MS}
    assert lost(NetworkDelay(), grown) == pytest.approx(0.3)
