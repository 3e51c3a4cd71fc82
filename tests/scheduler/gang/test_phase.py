"""Each row of the PodGroup phase table."""

import pytest

from scheduler.gang.phase import Counts, Phase, left_alone, next_phase


@pytest.mark.parametrize(
    ("phase", "counts", "expected"),
    [
        pytest.param(Phase.NEW, Counts(), Phase.PENDING, id="new"),
        pytest.param(Phase.PENDING, Counts(pods=2), Phase.PENDING, id="too few"),
        pytest.param(Phase.PENDING, Counts(pods=3), Phase.PRE_SCHEDULING, id="enough"),
        pytest.param(Phase.PRE_SCHEDULING, Counts(pods=3, bound=1), Phase.SCHEDULING, id="some bound"),
        pytest.param(Phase.PRE_SCHEDULING, Counts(pods=3, bound=3), Phase.SCHEDULED, id="all bound at once"),
        pytest.param(Phase.SCHEDULING, Counts(pods=3, bound=3), Phase.SCHEDULED, id="all bound"),
        pytest.param(Phase.SCHEDULED, Counts(pods=3, bound=3, running=3), Phase.RUNNING, id="running"),
        pytest.param(Phase.SCHEDULED, Counts(3, 3, running=2, succeeded=1), Phase.RUNNING, id="mixed"),
        pytest.param(Phase.RUNNING, Counts(3, 2, running=2), Phase.SCHEDULING, id="lost one"),
        pytest.param(Phase.RUNNING, Counts(3, 3, running=2, failed=1), Phase.FAILED, id="one failed"),
        pytest.param(Phase.SCHEDULING, Counts(3, 1, failed=1), Phase.SCHEDULING, id="failed, not enough yet"),
        pytest.param(Phase.RUNNING, Counts(3, 3, succeeded=3), Phase.FINISHED, id="finished"),
        pytest.param(Phase.RUNNING, Counts(), Phase.PENDING, id="no pods left"),
        pytest.param(Phase.FINISHED, Counts(), Phase.FINISHED, id="finished for good"),
        pytest.param(Phase.FAILED, Counts(pods=3, bound=3, running=3), Phase.FAILED, id="failed for good"),
    ],
)
def test_next_phase(phase: Phase, counts: Counts, expected: Phase) -> None:
    assert next_phase(phase, 3, counts) is expected


def test_left_alone() -> None:
    scheduled = Counts(pods=3, bound=3)
    assert left_alone(Phase.FINISHED, 3, scheduled, None)
    assert left_alone(Phase.SCHEDULED, 3, scheduled, 48 * 3600 + 1)
    assert not left_alone(Phase.SCHEDULED, 3, scheduled, 48 * 3600)
    assert not left_alone(Phase.SCHEDULED, 3, Counts(3, 3, running=1), 1e9)
