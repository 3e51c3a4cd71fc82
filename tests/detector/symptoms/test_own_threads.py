"""OwnThreads: the loss of one tick."""

import pytest

from detector.symptoms.own_threads import OwnThreads
from tests.detector.symptoms.ticks import MS, lost


def test_waits_behind_own_threads_count() -> None:
    grown = {"cpu.wait_self_ns": 300 * MS}
    assert lost(OwnThreads(), grown) == pytest.approx(0.3)
