"""NetworkRetransmit: the loss of one tick."""

import pytest

from detector.symptoms.network_retransmit import NetworkRetransmit
from tests.detector.symptoms.ticks import lost


def test_each_segment_costs_a_timeout() -> None:
    grown = {"net.tcp_retransmits": 5}
    assert lost(NetworkRetransmit(), grown) == pytest.approx(1.0)
