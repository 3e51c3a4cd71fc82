"""Warnings about sources, which two threads write: the one that asks them, and the one that looks at the tree."""

import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from koordlet.kubelet.retries import Complaints


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads that lose the interpreter after each few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_two_threads_complain_of_more_than_is_remembered() -> None:
    log = logging.Logger("silent", logging.CRITICAL)
    complaints = Complaints(log)

    def complain(of: str) -> None:
        for number in range(20_000):
            complaints.note(f"{of} {number}", "no cgroup")
            complaints.settled(f"{of} {number - 300}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(complain, ("pod", "container", "sandbox", "kubelet")))


def test_a_warning_is_written_once_until_it_is_settled(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("complaints"))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            complaints.note("kubelet", "refused")
        complaints.settled("kubelet")
        complaints.settled("kubelet")
        complaints.note("kubelet", "refused")
    assert [each.message for each in caplog.records] == [
        "kubelet: refused",
        "kubelet answers again",
        "kubelet: refused",
    ]
