"""Goals are met or missed by what was measured, at the bound too; what was not measured is neither."""

from dataclasses import replace

import pytest

from bench.detect.goals import Counts, as_table, goals

MET = Counts(
    runs=40,
    clean_runs=10,
    right=95,
    told=100,
    found=19,
    claims=20,
    named=20,
    judged=20,
    said=0,
    seconds=(1.5,) * 10 + (5.0,),
)


@pytest.mark.parametrize(
    ("counts", "missed"),
    [
        pytest.param(MET, [], id="all-met-at-their-bounds"),
        pytest.param(replace(MET, right=94), ["precision"], id="precision"),
        pytest.param(replace(MET, found=18), ["recall"], id="recall"),
        pytest.param(replace(MET, named=18), ["culprit top-1"], id="culprits"),
        pytest.param(replace(MET, seconds=(1.6,)), ["time to detect, median"], id="median"),
        pytest.param(replace(MET, seconds=(1.0, 1.0, 6.0)), ["time to detect, 95th percentile"], id="tail"),
        pytest.param(replace(MET, said=1), ["verdicts in clean runs"], id="clean"),
    ],
)
def test_goals_that_are_missed(counts: Counts, missed: list[str]) -> None:
    assert [goal.name for goal in goals(counts) if not goal.is_met] == missed


def test_a_goal_tells_figure_bound_and_runs() -> None:
    lines = [str(goal) for goal in goals(replace(MET, found=18))]
    assert lines[0] == "goal met: precision 95.0 % (95 of 100 verdicts in 40 runs), at least 95 %"
    assert lines[1] == "goal missed: recall 90.0 % (18 of 20 labels in 40 runs), at least 95 %"
    assert lines[3] == "goal met: time to detect, median 1.50 s (11 labels in 40 runs), at most 1.5 s"
    assert lines[5] == "goal met: verdicts in clean runs 0 (10 clean runs), none"
    assert as_table(goals(MET))[3] == "| recall | at least 95 % | 95.0 % | 19 of 20 labels in 40 runs | met |"


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    nothing = Counts(runs=1, clean_runs=0, right=0, told=0, found=0, claims=0, named=0, judged=0, said=0, seconds=())
    assert {goal.answer for goal in goals(nothing)} == {"not measured"}
