"""NetworkRetransmit: the loss of one tick."""

import pytest

from detector.symptoms.network_retransmit import NetworkRetransmit
from tests.detector.symptoms.ticks import MS, lost


def test_each_segment_that_was_dropped_here_costs_a_timeout() -> None:
    grown = {"net.tcp_retransmits": 5, "net.drops": 9}
    assert lost(NetworkRetransmit(), grown) == pytest.approx(1.0)


def test_segments_that_the_network_beyond_the_host_loses_cost_nothing() -> None:
    grown = {"net.tcp_retransmits": 50, "net.drops": 0}
    assert lost(NetworkRetransmit(), grown) == pytest.approx(0.0)
    grown = {"net.tcp_retransmits": 50, "net.drops": 1}
    assert lost(NetworkRetransmit(), grown) == pytest.approx(0.2)


def test_segments_that_a_queue_of_own_packets_dropped_cost_nothing() -> None:
    grown = {"net.tcp_retransmits": 50, "net.drops": 50, "net.qdisc_delay_ns": 900 * MS, "net.qdisc_self_ns": 900 * MS}
    assert lost(NetworkRetransmit(), grown) == pytest.approx(0.0)
    grown["net.qdisc_self_ns"] = 450 * MS
    assert lost(NetworkRetransmit(), grown) == pytest.approx(5.0)
