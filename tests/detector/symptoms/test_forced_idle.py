"""Forced idle: the loss of one tick, and the words of a verdict."""

import pytest

from api.verdict_text import in_words
from api.verdicts import How, VerdictState
from api.window import Window
from detector.judging.judge import Judge, JudgeSettings
from detector.symptoms.forced_idle import ForcedIdle
from detector.view import View
from tests.detector.made_frames import Tick, frames
from tests.frames import cgroup_info

SECOND = 10**9
INFOS = (cgroup_info(1, "/web"), cgroup_info(2, "/batch"), cgroup_info(3, "/batch/a"), cgroup_info(4, "/batch/b"))


def tick(waited: float, own: float, *others: float) -> Tick:
    """Seconds that the service waits behind idle CPUs, and that it and others force idle; a parent has the sum."""
    forced = {1: own, 2: sum(others), **dict(enumerate(others, start=3))}
    return Tick(
        {
            "cpu.wait_idle_ns": {1: waited * SECOND, 2: 0.0, 3: 0.0, 4: 0.0},
            "cpustat.forced_idle_ns": {each: seconds * SECOND for each, seconds in forced.items()},
        }
    )


@pytest.mark.parametrize(
    ("waited", "own", "others", "lost"),
    [
        pytest.param(0.5, 0.0, (0.6, 0.3), 0.5, id="all-of-the-wait"),
        pytest.param(0.5, 0.0, (0.1, 0.1), 0.2, id="the-rest-is-time-to-wake-up"),
        pytest.param(0.5, 0.9, (0.0, 0.0), 0.0, id="own-doing"),
        pytest.param(0.5, 0.0, (0.0, 0.0), 0.0, id="no-core-scheduling"),
    ],
)
def test_a_wait_counts_as_far_as_others_force_idle(
    waited: float, own: float, others: tuple[float, ...], lost: float
) -> None:
    signal = ForcedIdle().sense(View(Window(frames([tick(waited, own, *others)], INFOS)), ForcedIdle.columns))
    assert signal is not None
    assert signal.lost[0] == pytest.approx(lost)
    assert not signal.measured


def test_a_kernel_that_does_not_say_is_not_judged() -> None:
    made = frames([Tick({"cpu.wait_idle_ns": {1: 0.5 * SECOND}})], INFOS)
    assert ForcedIdle().sense(View(Window(made), ForcedIdle.columns)) is None


def test_a_verdict_names_the_leaves_that_share_with_none() -> None:
    judge = Judge(JudgeSettings())
    opened = [
        verdict
        for frame in frames([tick(0.5, 0.0, 0.6, 0.2)] * 4, INFOS)
        for verdict in judge.step(frame)
        if verdict.state is VerdictState.OPEN
    ]
    (verdict,) = opened
    assert (verdict.victim, verdict.rule, verdict.confidence) == ("/web", "forced-idle", 0.0)
    assert [(culprit.path, culprit.how) for culprit in verdict.culprits] == [
        ("/batch/a", How.CORRELATED),
        ("/batch/b", How.CORRELATED),
    ]
    assert verdict.culprits[0].share == pytest.approx(0.75)
    assert "on CPUs that core scheduling kept idle" in in_words(verdict)
