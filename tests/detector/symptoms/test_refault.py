"""Refaults: the loss of one tick."""

import pytest

from detector.symptoms.refault import Refault
from tests.detector.symptoms.ticks import MS, lost

LIMIT = "memory.stall_own_limit_ns"


@pytest.mark.parametrize(("pages", "expected"), [(0, 0.0), (3000, 0.3), (50_000, 1.0)])
def test_each_page_costs_a_read(pages: int, expected: float) -> None:
    assert lost(Refault(), {"memstat.refaults": pages, LIMIT: 0}) == pytest.approx(expected)


def test_refaults_under_a_limit_are_not_the_nodes() -> None:
    assert lost(Refault(), {"memstat.refaults": 5000, LIMIT: 100 * MS}) == 0.0
