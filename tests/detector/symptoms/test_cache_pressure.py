"""CachePressure: the loss of one tick."""

import pytest

from detector.symptoms.cache_pressure import CachePressure
from tests.detector.symptoms.ticks import PMU, lost


def test_more_misses_than_usual_count() -> None:
    grown = {**PMU, "pmu.llc_misses": 30}
    assert lost(CachePressure(), grown) == pytest.approx(0.4)


def test_without_more_misses_it_is_not_the_cache() -> None:
    grown = {**PMU, "pmu.llc_misses": 5}
    assert lost(CachePressure(), grown) == pytest.approx(0.0)


def test_the_usual_spread_is_no_loss() -> None:
    grown = {**PMU, "pmu.llc_misses": 30}
    assert lost(CachePressure(), grown, sigmas=1.0) == pytest.approx(0.0)
