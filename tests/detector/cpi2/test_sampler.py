"""CPI2 on frames: samples, histories, anomalies and antagonists, as the settings ask for it."""

from collections.abc import Sequence

import pytest

from api.verdicts import How, Verdict, VerdictState
from detector.cpi2.published import Cpi2Policy
from detector.judging.diagnosis import Reason
from detector.judging.judge import Judge, JudgeSettings
from detector.rules import Rule
from tests.detector.made_frames import Tick, cgroup, frames

POLICY = Cpi2Policy(
    min_tasks=2, min_samples_per_task=5, sample_seconds=2.0, sample_every_seconds=6.0, correlation_seconds=60.0
)
RULE = Rule(name="cpi2", any_of=("cpi2",), threshold=0.1)
INFOS = (
    cgroup(1, "/web-1", workload="web"),
    cgroup(2, "/web-2", workload="web"),
    cgroup(3, "/batch", workload="batch"),
    cgroup(4, "/steady", workload="steady"),
)


def tick(number: int, *, cpi: float = 1.0, batch_cores: float = 0.0) -> Tick:
    near = 1.0 + 0.01 * (number // 6 % 3)
    used = {1: 1e9, 2: 1e9, 3: batch_cores * 1e9, 4: 5e8}
    return Tick(
        {
            "cpu.oncpu_ns": used,
            "pmu.instructions": used,
            "pmu.cycles": {1: cpi * near * 1e9, 2: near * 1e9, 3: batch_cores * 1e9, 4: 5e8},
        }
    )


def told(ticks: Sequence[Tick], policy: Cpi2Policy | None = POLICY) -> tuple[Judge, list[Verdict]]:
    judge = Judge(JudgeSettings(rules=(RULE,), cpi2=policy))
    return judge, [verdict for frame in frames(ticks, INFOS) for verdict in judge.step(frame)]


CALM = [tick(number) for number in range(48)]
HARM = [tick(number, cpi=2.0, batch_cores=1.0) for number in range(24)]


def test_three_outliers_make_an_anomaly_and_the_one_that_goes_with_them_is_named() -> None:
    _judge, verdicts = told([*CALM, *HARM])
    opened = next(verdict for verdict in verdicts if verdict.state is VerdictState.OPEN)
    assert {verdict.victim for verdict in verdicts} == {"/web-1"}
    assert opened.time - 1_700_000_000 >= 48 + 2 * 6
    assert opened.lost_seconds_per_second == pytest.approx(0.5, abs=0.02)
    assert [(culprit.path, culprit.how) for culprit in opened.culprits] == [("/batch", How.CORRELATED)]
    assert opened.confidence == 0.0


def test_no_history_no_outlier() -> None:
    assert told(HARM)[1] == []


def test_silent_unless_asked_for() -> None:
    judge, verdicts = told([*CALM, *HARM], policy=None)
    assert verdicts == []
    assert {each.rule: each.reason for each in judge.diagnose("/web-1")}["cpi2"] is Reason.NOT_MEASURED


def test_other_parameters_forget_samples_on_resume() -> None:
    judge, _verdicts = told(CALM)
    other = JudgeSettings(rules=(RULE,), cpi2=Cpi2Policy())
    Judge.resume(other, judge.checkpoint()).step(frames([*CALM, CALM[0]], INFOS)[-1])
