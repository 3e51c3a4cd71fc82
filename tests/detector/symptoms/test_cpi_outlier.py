"""CpiOutlier: the loss of one tick."""

import pytest

from detector.symptoms.cpi_outlier import CpiOutlier
from tests.detector.symptoms.ticks import PMU, lost


def test_more_cycles_per_instruction_than_usual_count() -> None:
    assert lost(CpiOutlier(), PMU) == pytest.approx(0.4)


def test_the_usual_spread_is_no_loss() -> None:
    assert lost(CpiOutlier(), PMU, sigmas=1.0) == pytest.approx(0.0)


def test_a_phase_that_the_ordinary_ticks_have_too_is_no_loss() -> None:
    assert lost(CpiOutlier(), PMU, upper_ratio=2.5) == pytest.approx(0.0)
