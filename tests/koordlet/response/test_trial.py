"""Judgement of rungs: with and without, victims that fare worse, bystanders."""

import pytest

from koordlet.response.trial import (
    Judgement,
    VictimState,
    bystander_harmed,
    has_recovered,
    jittered,
    judge,
    worsened,
)

NAN = float("nan")


@pytest.mark.parametrize(
    ("with_rung", "without", "expected"),
    [
        pytest.param([0.01] * 20, [0.5], Judgement.HELPS, id="ends-it"),
        pytest.param([0.2] * 3, [0.5, 0.4], Judgement.HELPS, id="ends-half-of-it"),
        pytest.param([0.5] * 3, [0.5, 0.5], Judgement.USELESS, id="changes-nothing"),
        pytest.param([0.4] * 3, [0.5, 0.5], Judgement.USELESS, id="changes-little"),
        pytest.param([0.01] * 20, [0.01], Judgement.NEEDLESS, id="nothing-is-lost"),
        pytest.param([0.3] * 3, [0.01], Judgement.USELESS, id="worse-with-it"),
        pytest.param([0.01] * 3, [0.5], Judgement.USELESS, id="too-few-ticks-to-tell"),
        pytest.param([0.01, 0.01, 0.01, 0.4] * 5, [0.5], Judgement.USELESS, id="bursts-with-it-too"),
        pytest.param([0.01] * 59 + [0.4], [0.5], Judgement.HELPS, id="one-bad-tick-of-sixty"),
    ],
)
def test_judgement(with_rung: list[float], without: list[float], expected: Judgement) -> None:
    assert judge(with_rung, without, budget=0.05, min_improvement_ratio=0.3) is expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(VictimState(0.02, 0.4, 0.1), "", id="as-before"),
        pytest.param(VictimState(0.5, 0.4, 0.1), "its loss rose", id="waits-for-a-journal-commit"),
        pytest.param(VictimState(0.0, 0.05, 0.1), "its progress fell", id="waits-for-an-inode-lock"),
        pytest.param(VictimState(0.02, 0.4, 2.0), "its requests took", id="answers-late"),
        pytest.param(VictimState(0.02, 0.4, NAN), "", id="no-requests-seen"),
    ],
)
def test_a_victim_that_fares_worse(now: VictimState, expected: str) -> None:
    before = VictimState(0.02, 0.4, 0.2)
    found = worsened(before, now, budget=0.05)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
    assert has_recovered(before, now, budget=0.05) is not bool(expected)


def test_what_is_not_known_accuses_nobody() -> None:
    unknown = VictimState(NAN, NAN, NAN)
    assert worsened(unknown, VictimState(9.0, 0.0, 9.0), budget=0.05) == ""
    assert worsened(VictimState(0.0, 0.01, NAN), VictimState(0.0, 0.0, NAN), budget=0.05) == ""  # it hardly ran


@pytest.mark.parametrize(("now", "harmed"), [(0.10, False), (0.13, False), (0.15, True)])
def test_bystanders_may_lose_two_percent(now: float, harmed: bool) -> None:
    assert bystander_harmed(before=0.1, now=now, progress_cores=1.0, budget=0.02) is harmed


def test_jitter_is_within_a_quarter_and_differs() -> None:
    times = [jittered(40.0, "/batch/hog", "cpu", number) for number in range(50)]
    assert all(30.0 <= each <= 50.0 for each in times)
    assert len(set(times)) == 50
    assert jittered(40.0, "a", 1) == jittered(40.0, "a", 1)
