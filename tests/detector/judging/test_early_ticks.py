"""A tick amid an interval, which tells whether what the one before showed lasts."""

from dataclasses import replace

import pytest

from api.frame import Frame
from api.verdicts import VerdictState
from detector.judging.judge import Judge, JudgeSettings
from tests.detector.made_frames import BATCH, CALM, WEB, Tick, contention, frames

LOSS = 0.3


def at(made: list[Frame], seconds: list[float]) -> list[Frame]:
    """The frames at other times."""
    return [
        replace(frame, monotonic_ns=round(when * 1e9), wall_ns=1_700_000_000 * 10**9 + round(when * 1e9))
        for frame, when in zip(made, seconds, strict=True)
    ]


def opened(judge: Judge, frame: Frame) -> bool:
    return any(verdict.state is VerdictState.OPEN for verdict in judge.step(frame))


def test_a_loss_that_lasts_opens_with_the_early_tick() -> None:
    judge = Judge(JudgeSettings())
    calm, again, first, early = at(
        frames([CALM, contention(lost=LOSS), contention(lost=LOSS / 2)], (WEB, BATCH)), [0, 1, 2, 2.5]
    )
    assert not opened(judge, calm)
    assert not opened(judge, again)
    assert not judge.is_next_decisive
    assert not opened(judge, first)
    assert judge.is_next_decisive
    assert opened(judge, early)
    assert not judge.is_next_decisive
    (verdict,) = judge.open_verdicts
    assert verdict.lost_seconds_per_second == pytest.approx(LOSS)


def test_an_early_tick_knows_nothing_of_the_interval_before() -> None:
    """What was lost before the first tick is not counted twice."""
    judge = Judge(JudgeSettings())
    made = at(frames([CALM, contention(lost=LOSS), CALM, CALM], (WEB, BATCH)), [0, 1, 2, 2.5, 3.5])
    assert [opened(judge, frame) for frame in made] == [False] * 5
    assert not judge.open_verdicts


def test_ticks_that_are_always_short_are_no_early_ones() -> None:
    judge = Judge(JudgeSettings())
    pulse, quarters = [CALM] * 4 + [contention(lost=0.15)] + [CALM] * 3, [0.25 * number for number in range(9)]
    for frame in at(frames(pulse, (WEB, BATCH)), quarters)[:6]:
        judge.step(frame)
    held = next(each for each in judge.diagnose("/web") if each.rule == "cpu-contention")
    assert held.counted == pytest.approx(0.15, rel=0.01), "rates are those of a whole second"


@pytest.mark.parametrize(
    ("seconds", "learned"),
    [
        pytest.param([0, 1, 2, 2.5, 3.5], [1, 2, 3.5], id="half-a-second"),
        pytest.param([0, 10, 20, 21, 31], [10, 20, 31], id="a-second-of-ten"),
    ],
)
def test_nothing_is_learned_from_an_early_tick(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], learned: list[float]
) -> None:
    judge, taught = Judge(JudgeSettings()), []
    monkeypatch.setattr(judge.baselines, "learn", lambda _seen, now_seconds, *_marks: taught.append(now_seconds))
    for frame in at(frames([CALM] * 4, (WEB, BATCH)), seconds):
        judge.step(frame)
    assert [when - 1_700_000_000 for when in taught] == learned


def test_a_resumed_judge_knows_an_early_tick() -> None:
    made = at(frames([CALM] * 3 + [contention(lost=LOSS / 2)], (WEB, BATCH)), [0, 1, 2, 2.5, 3.0])
    judge = Judge(JudgeSettings())
    for frame in made[:3]:
        judge.step(frame)
    resumed = Judge.resume(JudgeSettings(), judge.checkpoint())
    for frame in made[3:]:
        assert resumed.step(frame) == judge.step(frame)
        assert resumed.checkpoint() == judge.checkpoint()


def test_an_estimated_loss_is_waited_for() -> None:
    """What one tick lacks of one measure, the next has too much."""
    stalled = Tick({"pressure.io_some_us": {1: 1e6}, "blockio.device_ns": {1: 0, 2: 0}})
    rules = tuple(rule for rule in JudgeSettings().rules if rule.name == "unexplained-io")
    judge, found = Judge(JudgeSettings(rules=rules)), []
    for frame in frames([stalled] * 4, (WEB, BATCH)):
        found.append((opened(judge, frame), judge.is_next_decisive))
    assert any(is_open for is_open, _ in found)
    assert not any(is_decisive for _, is_decisive in found)
