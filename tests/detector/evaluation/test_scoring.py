"""Scores of made verdict lines: each row says what a person would say of them."""

from typing import Any

import pytest

from api.verdicts import Culprit, How, Verdict, VerdictState
from detector.evaluation.scoring import NOTHING, Label, episodes, score, total
from tests.verdicts import make_verdict


def line(time: float, state: VerdictState = VerdictState.OPEN, *, culprit: str = "/hog", **changed: Any) -> Verdict:
    culprits = (Culprit(culprit, 0.9, How.DIRECT),) if culprit else ()
    return make_verdict(time=time, state=state, **{"culprits": culprits, "rule": "cpu"} | changed)


def label(start: float = 10, end: float = 20, **changed: Any) -> Label:
    return Label(**{"victim": "/web", "resource": "cpu", "culprit": "/hog", "start": start, "end": end} | changed)


SUFFERED_BY_HOG = label(victim="/hog", tolerated=True)


def test_a_verdict_that_answers_its_label() -> None:
    found = score("s", [label()], [line(12), line(21, VerdictState.CLOSE)], until=30)
    assert (found.precision, found.recall, found.culprit_top1, found.median_seconds_to_detect) == (1, 1, 1, 2)
    assert found.confusion == {("cpu", "cpu contention"): 1}


@pytest.mark.parametrize(
    ("labels", "lines", "precision", "recall", "top1"),
    [
        pytest.param([label()], [], None, 0.0, None, id="missed"),
        pytest.param([], [line(12)], 0.0, None, None, id="false-alarm"),
        pytest.param([], [], None, None, None, id="rightly-silent"),
        pytest.param([label()], [line(12, victim="/other")], 0.0, 0.0, None, id="another-victim"),
        pytest.param([label()], [line(12, resource="memory", cause="reclaim")], 0.0, 0.0, None, id="another-resource"),
        pytest.param([label()], [line(12, culprit="/innocent")], 1.0, 1.0, 0.0, id="wrong-culprit"),
        pytest.param([label()], [line(12, culprit="")], 1.0, 1.0, 0.0, id="nobody-named"),
        pytest.param([label(culprit="")], [line(12)], 1.0, 1.0, None, id="no-culprit-asked-for"),
        pytest.param([label(culprit="[kernel]")], [line(12, culprit="[kernel]")], 1.0, 1.0, 1.0, id="bracketed"),
        pytest.param([label(victim="/w*", culprit="/h?g")], [line(12)], 1.0, 1.0, 1.0, id="patterns"),
        pytest.param([label()], [line(24)], 1.0, 1.0, 1.0, id="opens-in-the-grace"),
        pytest.param([label()], [line(26)], 0.0, 0.0, None, id="opens-too-late"),
        pytest.param([label()], [line(3), line(9, VerdictState.CLOSE)], 0.0, 0.0, None, id="closed-before"),
        pytest.param([label(cause="own_quota")], [line(12)], 0.0, 0.0, None, id="another-cause"),
        pytest.param([label(), SUFFERED_BY_HOG], [line(12), line(12, victim="/hog")], 1, 1, 1, id="tolerated"),
    ],
)
def test_rows(
    labels: list[Label], lines: list[Verdict], precision: float | None, recall: float | None, top1: float | None
) -> None:
    found = score("s", labels, lines, until=30)
    assert (found.precision, found.recall, found.culprit_top1) == (precision, recall, top1)


def test_another_resource_at_the_labelled_time_stands_off_the_diagonal() -> None:
    lines = [line(12), line(13, resource="memory", cause="reclaim", rule="memory"), line(100, victim="/x")]
    found = score("s", [label(), label(40, 50)], [*lines, line(21, VerdictState.CLOSE)], until=200)
    assert found.confusion == {
        ("cpu", "cpu contention"): 1,
        ("cpu", "memory reclaim"): 1,
        (NOTHING, "cpu contention"): 1,
        ("cpu", NOTHING): 1,
    }
    assert found.precision == pytest.approx(1 / 3)


def test_the_culprit_is_whom_the_longest_standing_line_blames() -> None:
    lines = [line(11, culprit="/early"), line(12, VerdictState.UPDATE), line(19, VerdictState.UPDATE, culprit="/late")]
    (outcome,) = score("s", [label()], lines, until=60).outcomes
    assert (outcome.culprit, outcome.culprit_right, outcome.seconds_to_detect) == ("/hog", True, 1)


def test_episodes_end_with_their_closing_or_the_recording() -> None:
    told = [line(1), line(3, VerdictState.CLOSE), line(5), line(6, VerdictState.CLOSE, victim="/never-opened")]
    assert [(episode.start, episode.end) for episode in episodes(told, until=9)] == [(1, 3), (5, 9)]


def test_a_total_weighs_labels_and_episodes_not_scenarios() -> None:
    good = score("good", [label()], [line(12)], until=30)
    bad = score("bad", [label(), label(100, 110), label(200, 210)], [], until=300)
    whole = total([good, bad])
    assert (whole.recall, whole.precision, whole.worst_seconds_to_detect) == (0.25, 1.0, 2)
    assert whole.confusion == {("cpu", "cpu contention"): 1, ("cpu", NOTHING): 3}
