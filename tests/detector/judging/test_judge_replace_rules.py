"""Rules change while verdicts stand: those of unchanged rules go on, those of the others close."""

import msgspec

from api.frame import Frame
from api.verdicts import VerdictState
from detector.judging.judge import Judge, JudgeSettings
from detector.rules import Rule
from tests.frames import make_frame

PATHS = {1: "/web", 2: "/batch"}
KEPT = Rule(name="kept", any_of=("cpu_contention",))
CHANGED = Rule(name="changed", any_of=("cpu_contention",))
GONE = Rule(name="gone", any_of=("cpu_contention",))


def frame(second: int) -> Frame:
    waited, blame = second * 400_000_000, {(1, 2): second * 300_000_000}
    return make_frame(second, PATHS, {"cpu.wait_neighbour_ns": [waited, 0]}, blame)


def judge_with_open_verdicts(*rules: Rule) -> Judge:
    judge = Judge(JudgeSettings(rules=rules))
    for second in range(4):
        judge.step(frame(second))
    assert [verdict.rule for verdict in judge.open_verdicts] == sorted(rule.name for rule in rules)
    return judge


def test_verdicts_of_unchanged_rules_stand_and_the_others_close_with_the_next_frame() -> None:
    judge = judge_with_open_verdicts(CHANGED, GONE, KEPT)
    stricter = msgspec.structs.replace(CHANGED, threshold=0.9)
    judge.replace_rules((stricter, KEPT))
    assert judge.settings.rules == (stricter, KEPT)
    told = judge.step(frame(4))
    assert [(verdict.rule, verdict.state) for verdict in told] == [
        ("changed", VerdictState.CLOSE),
        ("gone", VerdictState.CLOSE),
    ]
    assert [verdict.rule for verdict in judge.open_verdicts] == ["kept"]
    assert [judge.step(frame(second)) for second in range(5, 9)] == [[]] * 4


def test_a_rule_that_is_new_opens_of_its_own_time_and_a_changed_one_again() -> None:
    judge = judge_with_open_verdicts(CHANGED)
    judge.replace_rules((msgspec.structs.replace(CHANGED, threshold=0.2), KEPT))
    told = [(verdict.rule, verdict.state) for second in range(4, 8) for verdict in judge.step(frame(second))]
    assert told == [("changed", VerdictState.CLOSE), ("kept", VerdictState.OPEN), ("changed", VerdictState.OPEN)]


def test_the_same_rules_again_change_nothing() -> None:
    judge = judge_with_open_verdicts(KEPT, CHANGED)
    for second in range(4, 8):
        judge.replace_rules((CHANGED, msgspec.structs.replace(KEPT)))
        assert judge.step(frame(second)) == []
