"""Cpi2: the loss that the sampler states."""

import numpy as np
import pytest

from detector.cpi2.published import Cpi2Policy
from detector.cpi2.sampler import Sampled
from detector.ring import Ring
from detector.symptoms.cpi2 import Cpi2
from tests.detector.symptoms.ticks import tick


@pytest.mark.parametrize(
    ("anomalous", "lost"), [pytest.param(True, 0.4, id="anomaly"), pytest.param(False, 0.0, id="no-anomaly")]
)
def test_the_mean_would_have_saved_half_of_the_time_on_cpu(anomalous: bool, lost: float) -> None:
    view = tick(Cpi2(), {})
    one = np.ones(1)
    view.cpi2 = Sampled(2 * one, 0.8 * one, one, 1.5 * one, np.array([anomalous]), Ring(2, 2), Cpi2Policy())
    signal = Cpi2().sense(view)
    assert signal is not None
    assert (signal.lost.tolist(), signal.measured) == ([pytest.approx(lost)], False)
