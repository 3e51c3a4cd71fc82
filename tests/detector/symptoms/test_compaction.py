"""Compaction: the loss of one tick."""

import pytest

from detector.judging.judge import Judge, JudgeSettings
from detector.symptoms.compaction import Compaction
from tests.detector.symptoms.ticks import MS, lost
from tests.frames import make_frame


def test_stalls_count() -> None:
    grown = {"memory.stall_compaction_ns": 70 * MS}
    assert lost(Compaction(), grown) == pytest.approx(0.07)


def test_those_that_take_pages_are_named_and_the_own_part_is_left_out() -> None:
    judge, said = Judge(JudgeSettings()), []
    for second in range(4):
        columns = {
            "memory.stall_compaction_ns": [400 * MS * second, 0, 0],
            "memory.pressure_pages": [10_000 * second, 30_000 * second, 0],
        }
        said += judge.step(make_frame(second, {1: "/jvm", 2: "/hog", 3: "/idle"}, columns))
    assert [(each.victim, each.cause, each.state) for each in said] == [("/jvm", "compaction", "open")]
    assert said[0].lost_seconds_per_second == pytest.approx(0.3)
    assert [each.path for each in said[0].culprits] == ["/hog"]


def test_a_few_pages_of_others_are_not_their_doing() -> None:
    judge, said = Judge(JudgeSettings()), []
    for second in range(4):
        columns = {
            "memory.stall_compaction_ns": [400 * MS * second, 0, 0],
            "memory.pressure_pages": [0, 1500 * second, 0],
        }
        said += judge.step(make_frame(second, {1: "/jvm", 2: "/shell", 3: "/idle"}, columns))
    assert [(each.victim, each.culprits) for each in said] == [("/jvm", ())]
