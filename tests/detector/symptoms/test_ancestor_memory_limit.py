"""AncestorMemoryLimit: the loss of one tick."""

import pytest

from detector.symptoms.ancestor_memory_limit import AncestorMemoryLimit
from tests.detector.symptoms.ticks import MS, lost


def test_stalls_count() -> None:
    grown = {"memory.stall_ancestor_limit_ns": 70 * MS}
    assert lost(AncestorMemoryLimit(), grown) == pytest.approx(0.07)
