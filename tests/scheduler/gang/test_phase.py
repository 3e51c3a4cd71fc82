"""Each row of the PodGroup phase table."""

import pytest

from scheduler.gang.phase import Counts, GangPhase, left_alone, next_phase


@pytest.mark.parametrize(
    ("phase", "counts", "expected"),
    [
        pytest.param(GangPhase.NEW, Counts(), GangPhase.PENDING, id="new"),
        pytest.param(GangPhase.PENDING, Counts(pods=2), GangPhase.PENDING, id="too few"),
        pytest.param(GangPhase.PENDING, Counts(pods=3), GangPhase.PRE_SCHEDULING, id="enough"),
        pytest.param(GangPhase.PRE_SCHEDULING, Counts(pods=3, bound=1), GangPhase.SCHEDULING, id="some bound"),
        pytest.param(GangPhase.PRE_SCHEDULING, Counts(pods=3, bound=3), GangPhase.SCHEDULED, id="all bound at once"),
        pytest.param(GangPhase.SCHEDULING, Counts(pods=3, bound=3), GangPhase.SCHEDULED, id="all bound"),
        pytest.param(GangPhase.SCHEDULED, Counts(pods=3, bound=3, running=3), GangPhase.RUNNING, id="running"),
        pytest.param(GangPhase.SCHEDULED, Counts(3, 3, running=2, succeeded=1), GangPhase.RUNNING, id="mixed"),
        pytest.param(GangPhase.RUNNING, Counts(3, 2, running=2), GangPhase.SCHEDULING, id="lost one"),
        pytest.param(GangPhase.RUNNING, Counts(3, 3, running=2, failed=1), GangPhase.FAILED, id="one failed"),
        pytest.param(GangPhase.SCHEDULING, Counts(3, 1, failed=1), GangPhase.SCHEDULING, id="failed, not enough yet"),
        pytest.param(GangPhase.RUNNING, Counts(3, 3, succeeded=3), GangPhase.FINISHED, id="finished"),
        pytest.param(GangPhase.RUNNING, Counts(), GangPhase.PENDING, id="no pods left"),
        pytest.param(GangPhase.FINISHED, Counts(), GangPhase.FINISHED, id="finished for good"),
        pytest.param(GangPhase.FAILED, Counts(pods=3, bound=3, running=3), GangPhase.FAILED, id="failed for good"),
    ],
)
def test_next_phase(phase: GangPhase, counts: Counts, expected: GangPhase) -> None:
    assert next_phase(phase, 3, counts) is expected


def test_left_alone() -> None:
    scheduled = Counts(pods=3, bound=3)
    assert left_alone(GangPhase.FINISHED, 3, scheduled, None)
    assert left_alone(GangPhase.SCHEDULED, 3, scheduled, 48 * 3600 + 1)
    assert not left_alone(GangPhase.SCHEDULED, 3, scheduled, 48 * 3600)
    assert not left_alone(GangPhase.SCHEDULED, 3, Counts(3, 3, running=1), 1e9)
