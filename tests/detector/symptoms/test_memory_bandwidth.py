"""MemoryBandwidth: the loss of one tick."""

import pytest

from detector.symptoms.memory_bandwidth import MemoryBandwidth
from tests.detector.symptoms.ticks import PMU, lost


def test_more_cycles_beside_more_traffic_count() -> None:
    grown = {**PMU, "resctrl.mbm_total_bytes": 5}
    assert lost(MemoryBandwidth(), grown) == pytest.approx(0.4)


def test_the_usual_spread_is_no_loss() -> None:
    grown = {**PMU, "resctrl.mbm_total_bytes": 5}
    assert lost(MemoryBandwidth(), grown, sigmas=1.0) == pytest.approx(0.0)
