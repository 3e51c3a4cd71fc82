"""OwnQuota: the loss of one tick."""

import pytest

from detector.symptoms.own_quota import OwnQuota
from tests.detector.symptoms.ticks import MS, lost


def test_thread_time_comes_before_cpu_time() -> None:
    grown = {"cpu.wait_own_quota_ns": 200 * MS, "cpustat.throttled_ns": 900 * MS}
    assert lost(OwnQuota(), grown) == pytest.approx(0.2)


def test_the_kernels_files_answer_without_the_probe() -> None:
    grown = {"cpustat.throttled_ns": 900 * MS}
    assert lost(OwnQuota(), grown) == pytest.approx(0.9)
