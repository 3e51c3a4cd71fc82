"""Diagnoses, suspects for closer measurement, and the effect of a model's suspicion."""

from collections.abc import Sequence

import numpy as np
import pytest

from api.frame import CgroupInfo
from api.verdicts import How, VerdictState
from api.window import Window
from detector.baselines.values import BaselinePolicy, WorkloadKey
from detector.judging.diagnosis import Reason, RuleDiagnosis
from detector.judging.features import features
from detector.judging.judge import Judge, JudgeSettings
from detector.models.features import FEATURE_COLUMNS
from detector.models.format import SCHEMA, Mixture, ModelFile, WorkloadModel
from detector.registry import discover_symptoms
from detector.rules import Rule, Selector, SuspicionPolicy
from detector.view import View
from tests.detector.made_frames import BATCH, CALM, OTHER, WEB, Tick, cgroup, contention, frames

MILD = contention(lost=0.2)
NOBODY = np.zeros(3, dtype=np.bool_)


def after(
    ticks: Sequence[Tick], rule: Rule | None = None, infos: Sequence[CgroupInfo] = (WEB, BATCH, OTHER), **more: object
) -> Judge:
    judge = Judge(JudgeSettings(rules=(rule,), **more) if rule else JudgeSettings(**more))  # type: ignore[arg-type]
    for frame in frames(ticks, infos):
        judge.step(frame)
    return judge


def diagnosis_of(judge: Judge, path: str = "/web") -> RuleDiagnosis:
    """The diagnosis by the rule for CPU contention; by the only rule where there is one."""
    found = judge.diagnose(path)
    return next((each for each in found if each.rule == "cpu-contention"), found[0])


CPU = Rule(name="cpu", any_of=("cpu_contention",), hold_seconds=2, cooldown_seconds=30)


@pytest.mark.parametrize(
    ("ticks", "rule", "reason"),
    [
        pytest.param([MILD, MILD], CPU, Reason.OPEN, id="open"),
        pytest.param([MILD], CPU, Reason.NOT_HELD, id="one-tick"),
        pytest.param([contention(lost=0.04)], CPU, Reason.BELOW_THRESHOLD, id="little"),
        pytest.param([MILD, MILD, CALM, CALM, MILD], CPU, Reason.COOLING_DOWN, id="just-closed"),
        pytest.param([MILD], Rule(name="r", any_of=("reclaim",)), Reason.NOT_MEASURED, id="no-probe"),
        pytest.param(
            [MILD],
            Rule(name="r", any_of=("cpu_contention",), selector=Selector(paths=("/b*",))),
            Reason.NOT_SELECTED,
            id="about-others",
        ),
        pytest.param(
            [MILD],
            Rule(name="r", any_of=("cpu_contention",), unless_measured=("cpu_contention",)),
            Reason.SUPERSEDED,
            id="rests",
        ),
    ],
)
def test_why(ticks: Sequence[Tick], rule: Rule, reason: Reason) -> None:
    assert diagnosis_of(after(ticks, rule)).reason is reason


def test_a_look_shows_what_a_verdict_would() -> None:
    seen = diagnosis_of(after([CALM, MILD], CPU))
    assert (seen.threshold, seen.held_ticks, seen.needed_ticks, seen.of_ticks) == (0.05, 1, 2, 3)
    (symptom,) = seen.symptoms
    assert (symptom.name, symptom.lost, symptom.exceeds) == ("cpu_contention", pytest.approx(0.2), True)
    assert [(culprit.path, culprit.share) for culprit in seen.culprits] == [("/batch", pytest.approx(1.0))]
    assert seen.confidence == pytest.approx(1.0)
    assert seen.evidence["cpu.wait_neighbour_ns"] == pytest.approx(0.2)
    cooling = diagnosis_of(after([MILD, MILD, CALM, CALM, CALM], CPU))
    assert cooling.cooldown_left_seconds == pytest.approx(29.0)


def test_a_look_changes_nothing_and_knows_only_who_is_there() -> None:
    judge = after([CALM, MILD], CPU)
    before = judge.checkpoint()
    assert [diagnosis.rule for diagnosis in judge.diagnose("/web")] == ["cpu"]
    assert judge.diagnose("/nobody") == ()
    assert judge.checkpoint() == before
    assert Judge(JudgeSettings()).diagnose("/web") == ()


@pytest.mark.parametrize(
    ("ticks", "suspects"),
    [
        pytest.param([CALM, CALM], [False, False, False], id="calm"),
        pytest.param([CALM, contention(lost=0.03)], [True, True, False], id="half-a-threshold-and-the-culprit"),
        pytest.param([CALM, MILD, CALM], [True, False, False], id="held-a-moment-ago"),
        pytest.param([MILD, MILD, CALM], [True, True, False], id="open-with-its-culprit"),
        pytest.param([Tick({"cpustat.throttled_ns": {3: 1e8}})], [False, False, True], id="throttled"),
        pytest.param(
            [Tick({**CALM.columns, "pressure.io_some_us": {2: 3e5}})],
            [False, True, False],
            id="pressure-though-it-rests",
        ),
    ],
)
def test_suspects(ticks: Sequence[Tick], suspects: list[bool]) -> None:
    assert after(ticks).suspects.tolist() == suspects


def test_nobody_is_suspected_before_the_first_tick() -> None:
    judge = Judge(JudgeSettings())
    assert judge.suspects.tolist() == []
    judge.step(frames([CALM], (WEB, BATCH, OTHER))[0])
    assert judge.suspects.tolist() == [False, False, False]


STRANGER = cgroup(1, "/web", workload="web")


def models(feature: str = "cpu_cores") -> ModelFile:
    """A model of the workload `web`, which finds anything above half a core strange."""
    key = WorkloadKey("web", "", "")
    mixture = Mixture((1.0,), ((0.0,),), (((1.0,),),))
    model = WorkloadModel(key, (0.0,), (0.125,), -8.9, mixture, 100, "labels", {})
    return ModelFile(SCHEMA, (feature,), 0.0, (model,))


def running(cores: float, lost: float) -> Tick:
    return Tick({**contention(lost=lost).columns, "cpu.oncpu_ns": {1: cores * 1e9}}, contention(lost=lost).blame)


def judged_with_model(tick: Tick, **more: object) -> tuple[Judge, list[VerdictState]]:
    judge = Judge(JudgeSettings(models=models(), **more))  # type: ignore[arg-type]
    told = [judge.step(frame) for frame in frames([tick], (STRANGER, BATCH))]
    return judge, [verdict.state for verdicts in told for verdict in verdicts]


def test_suspicion_needs_less_loss_and_fewer_ticks() -> None:
    assert judged_with_model(running(cores=0.9, lost=0.03))[1] == [VerdictState.OPEN]
    assert judged_with_model(running(cores=0.1, lost=0.03))[1] == []
    diagnosis = diagnosis_of(judged_with_model(running(cores=0.9, lost=0.03))[0])
    assert (diagnosis.is_suspicious, diagnosis.threshold, diagnosis.needed_ticks) == (True, 0.025, 1)


def test_models_of_the_cluster_come_and_go_while_the_judge_runs() -> None:
    made = frames([running(cores=0.9, lost=0.03)] * 6, (STRANGER, BATCH))
    judge = Judge(JudgeSettings())
    assert [judge.step(frame) for frame in made[:3]] == [[]] * 3
    judge.replace_fleet_models((models("turnaround_seconds"), models()))
    assert [each.state for each in judge.step(made[3])] == [VerdictState.OPEN]
    resumed = Judge.resume(judge.settings, judge.checkpoint())
    assert resumed.step(made[4]) == judge.step(made[4])
    assert diagnosis_of(resumed).is_suspicious
    judge.replace_fleet_models(())
    judge.step(made[5])
    assert not diagnosis_of(judge).is_suspicious


def test_a_model_alone_opens_nothing_but_makes_a_suspect() -> None:
    judge, told = judged_with_model(running(cores=0.9, lost=0.0))
    assert told == []
    assert judge.suspects.tolist() == [True, False]


def test_suspicion_confirms_no_estimate() -> None:
    exposed = Tick({"cpu.oncpu_ns": {1: 9e8}, "cpu.smt_foreign_ns": {1: 9e8}})
    rule = Rule(name="smt", any_of=("smt_sibling",), threshold=0.3)
    judge, told = judged_with_model(exposed, rules=(rule,))
    assert (told, diagnosis_of(judge).threshold, diagnosis_of(judge).needed_ticks) == ([], 0.3, 2)


def test_a_policy_may_ignore_models() -> None:
    policy = SuspicionPolicy(threshold_ratio=1.0, ticks=60)
    assert judged_with_model(running(cores=0.9, lost=0.03), suspicion=policy)[1] == []


def test_models_of_features_that_are_not_measured_suspect_nobody() -> None:
    judge = Judge(JudgeSettings(models=models("turnaround_seconds")))
    told = [judge.step(frame) for frame in frames([running(0.9, 0.03)] * 4, (STRANGER, BATCH))]
    assert told == [[]] * 5


def test_features_are_rates_in_base_units_and_only_what_is_measured() -> None:
    tick = Tick({"cpu.oncpu_ns": {1: 5e8}, "pmu.cycles": {1: 3e9}, "pmu.instructions": {1: 1e9}})
    view = View(Window(frames([tick], (WEB, BATCH))), FEATURE_COLUMNS)
    names, matrix = features(view)
    assert names == ("cpu_cores", "cpi")
    assert matrix[0] == pytest.approx([0.5, 3.0])
    assert np.isnan(matrix[1, 1])
    assert np.isnan(features(view, ("requests", "cpu_cores"))[1][:, 0]).all()


def served(requests: float, seconds_each: float, waited: float = 0.0) -> Tick:
    columns = {
        "turnaround.requests": {1: requests},
        "turnaround.sum_ns": {1: requests * seconds_each * 1e9},
        "cpu.wait_neighbour_ns": {1: waited * 1e9},
    }
    return Tick(columns, {(1, 2): waited * 0.9, (1, 3): waited * 0.1})


WARM = BaselinePolicy(warm_samples=10.0, warm_periods=1)
LATE = (Rule(name="late", any_of=("turnaround",), threshold=0.1),)
USUAL = [served(100 + (n % 2), 0.002) for n in range(12)] + [served(400 + (n % 2), 0.008) for n in range(12)]


def turned(ticks: Sequence[Tick]) -> list[tuple[str, list[tuple[str, float]], float]]:
    judge = Judge(JudgeSettings(rules=LATE, baselines=WARM))
    told = [v for frame in frames([*USUAL, *ticks], (STRANGER, BATCH, OTHER)) for v in judge.step(frame)]
    opened = [verdict for verdict in told if verdict.state is VerdictState.OPEN]
    assert all(culprit.how is How.DIRECT for verdict in opened for culprit in verdict.culprits)
    return [
        (v.cause, [(c.path, round(c.share, 2)) for c in v.culprits], v.evidence.get("explained_by.cpu_contention", 0.0))
        for v in opened
    ]


def test_a_late_service_names_what_explains_it_and_whose_doing_that_is() -> None:
    ((cause, culprits, part),) = turned([served(100, 0.008, waited=0.45)] * 3)
    assert cause == "turnaround"
    assert part == pytest.approx(0.45 / 0.6, rel=0.05)
    assert [path for path, _ in culprits] == ["/batch", "/other"]
    assert dict(culprits)["/batch"] == pytest.approx(0.9 * part, abs=0.01)


def test_a_late_service_that_nothing_explains_names_nobody() -> None:
    assert turned([served(100, 0.008)] * 3) == [("turnaround", [], 0.0)]


def test_a_surge_of_own_requests_is_no_loss() -> None:
    assert turned([served(400, 0.008, waited=0.4)] * 5) == []


def test_every_symptom_that_is_measured_can_be_looked_at() -> None:
    names = {diagnosis.name for rule in after([MILD]).diagnose("/web") for diagnosis in rule.symptoms}
    assert names == set(discover_symptoms())
