"""Remote memory: the loss of one tick."""

import pytest

from api.verdicts import OWN_PLACEMENT
from detector.symptoms.remote_memory import RemoteMemory
from tests.detector.symptoms.ticks import lost

GIB = 1 << 30
SECOND = 10**9


@pytest.mark.parametrize(
    ("away", "expected"),
    [
        pytest.param(4 * GIB, 0.5, id="all"),
        pytest.param(GIB, 0.125, id="a-quarter"),
        pytest.param(1 << 20, 0.0, id="too-little"),
    ],
)
def test_the_part_that_is_away_costs_a_quarter_of_its_time(away: int, expected: float) -> None:
    columns = {"numa.away_bytes": away, "numa.placed_bytes": 4 * GIB, "cpu.oncpu_ns": 2 * SECOND}
    assert lost(RemoteMemory(), columns) == pytest.approx(expected)


def test_it_is_nobodys_doing() -> None:
    assert RemoteMemory.blame.named == OWN_PLACEMENT
