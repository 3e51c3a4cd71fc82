"""Proofs, scores and tables of made-up runs."""

import math

import pytest

from api.verdicts import Culprit, How, Severity, Verdict, VerdictState
from bench.detect.claims import Claim, Proof, Scenario, labels_of
from bench.detect.measures import MEMORY_BYTES, USAGE, WAIT, Sample
from bench.detect.report import as_report, as_values, line_of, scored, totals, wrong_lines
from bench.detect.runner import Proven, Run, mean
from tests.verdicts import make_verdict

PATHS = {"victim": "/top/victim", "hog": "/top/hog"}
HARM = (10.0, 20.0)


def verdict(
    time: float, state: VerdictState = VerdictState.OPEN, victim: str = "/top/victim", culprit: str = "/top/hog"
) -> Verdict:
    return make_verdict(
        victim, time=time, state=state, lost=0.3, severity=Severity.LOW, culprits=(Culprit(culprit, 1.0, How.DIRECT),)
    )


def run(*verdicts: Verdict, claims: tuple[Claim, ...] = (), measured: float = 0.3) -> Run:
    scenario = Scenario("one", "", lambda _stage: None, claims)
    labels = tuple(labels_of(scenario, PATHS, "/top", HARM, (0.0, 25.0)))
    proven = (Proven(Proof("victim", WAIT, 0.1), measured),)
    samples = tuple(Sample(float(t), {"victim": {WAIT: 0.0}, "hog": {USAGE: 0.0}}) for t in range(25))
    return Run(scenario, labels, verdicts, 3, samples, PATHS, proven, 26.0, 0.1)


CLAIM = Claim("victim", "cpu", "contention", "hog")


def test_a_found_culprit() -> None:
    one = scored(run(verdict(11.5), verdict(22.0, VerdictState.CLOSE), claims=(CLAIM,)))
    assert (one.product.precision, one.product.recall, one.product.culprit_top1) == (1.0, 1.0, 1.0)
    assert one.product.median_seconds_to_detect == 1.5
    assert line_of(one) == "one                cpu contention by hog after 1.5 s"
    assert wrong_lines(one) == []


def test_a_wrong_culprit_is_said() -> None:
    one = scored(run(verdict(11.5, culprit="/elsewhere"), claims=(CLAIM,)))
    assert one.product.culprit_top1 == 0.0
    assert "WRONG CULPRIT, not hog" in line_of(one)


def test_silence_about_harm_is_a_miss_and_silence_otherwise_is_right() -> None:
    missed, clean = scored(run(claims=(CLAIM,))), scored(run())
    assert "MISSED cpu contention" in line_of(missed)
    assert "nothing said" in line_of(clean)
    assert totals([missed, clean])["koord"].recall == 0.0


def test_a_verdict_without_harm_is_wrong_and_listed() -> None:
    one = scored(run(verdict(5.0)))
    assert one.product.wrong_episodes == 1
    (line,) = wrong_lines(one)
    assert line.startswith("one: /top/victim")
    assert line in as_report([one], {})


def test_peers_that_say_nothing_miss_the_same_label() -> None:
    one = scored(run(verdict(11.5), claims=(CLAIM,)))
    assert {name: score.recall for name, score in one.scores.items()} == {
        "koord": 1.0,
        "usage": 0.0,
        "pressure": 0.0,
        "correlation": 0.0,
    }


def test_a_run_that_is_not_proven_says_so_and_is_scored_all_the_same() -> None:
    one = scored(run(verdict(11.5), claims=(CLAIM,), measured=0.02))
    assert "UNPROVEN: victim wait 0.020" in line_of(one)
    assert one.product.recall == 1.0
    assert "unproven runs: 1 of 1" in as_report([one], {})


def test_the_report_says_of_each_goal_whether_it_is_met() -> None:
    text = as_report(
        [scored(run(verdict(11.5), verdict(22.0, VerdictState.CLOSE), claims=(CLAIM,))), scored(run())], {}
    )
    assert "goal met: recall 100.0 % (1 of 1 labels in 2 runs), at least 95 %" in text
    assert "goal met: verdicts in clean runs 0 (1 clean runs), none" in text
    assert "goal missed: precision 0.0 % (0 of 1 verdicts in 1 runs)" in as_report([scored(run(verdict(5.0)))], {})


def test_the_report_names_what_could_not_be_staged() -> None:
    assert "skipped disk: no loop device" in as_report([scored(run())], {"disk": "no loop device"})


def test_values_hold_every_figure() -> None:
    values = as_values([scored(run(verdict(11.5), claims=(CLAIM,)))], {}, {"cpus": 2})
    assert values["totals"]["koord"]["recall"] == 1.0
    assert values["totals"]["koord"]["p95_seconds_to_detect"] == 1.5
    assert values["totals"]["usage"]["p95_seconds_to_detect"] is None
    (only,) = values["runs"]
    assert only["proofs"] == [{"role": "victim", "measure": WAIT, "measured": 0.3, "holds": True}]


def samples_of(measure: str, *values: float) -> list[Sample]:
    return [Sample(float(t), {"victim": {measure: value}}) for t, value in enumerate(values)]


@pytest.mark.parametrize(
    ("measure", "values", "span", "expected"),
    [
        pytest.param(WAIT, (0, 0, 0, 1, 2, 2), (2.0, 4.0), 1.0, id="growth-within-the-harm"),
        pytest.param(WAIT, (0, 0, 0, 1, 2, 2), (0.0, 5.0), 0.4, id="growth-over-all"),
        pytest.param(MEMORY_BYTES, (1, 2, 3, 4, 5, 6), (1.0, 3.0), 3.0, id="a-gauge-is-averaged"),
    ],
)
def test_a_proof_is_a_mean_over_the_harm(
    measure: str, values: tuple[float, ...], span: tuple[float, float], expected: float
) -> None:
    assert mean(samples_of(measure, *values), Proof("victim", measure), span) == pytest.approx(expected)


def test_what_was_not_measured_proves_nothing() -> None:
    nothing = mean(samples_of(WAIT, 0, 1), Proof("victim", USAGE), (0.0, 1.0))
    assert math.isnan(nothing)
    assert not Proven(Proof("victim", USAGE), nothing).holds
