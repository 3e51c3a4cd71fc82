"""AncestorQuota: the loss of one tick."""

import pytest

from detector.symptoms.ancestor_quota import AncestorQuota
from tests.detector.symptoms.ticks import MS, lost


def test_throttled_time_counts() -> None:
    grown = {"cpu.wait_ancestor_quota_ns": 250 * MS}
    assert lost(AncestorQuota(), grown) == pytest.approx(0.25)
