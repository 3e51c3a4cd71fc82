"""What a neighbour does for long, from the start or little by little is not learned as usual; a day's rhythm is."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from api.frame import CGROUP, CgroupInfo, Frame, Table
from api.verdicts import VerdictState
from detector.arrays import Floats
from detector.baselines.file import decode, encode
from detector.baselines.learner import Baselines
from detector.baselines.values import BaselinePolicy, BaselineSample, LoadKind, WorkloadKey
from detector.judging.judge import Judge, JudgeSettings
from detector.registry import default_rules

WALL = 1_700_000_000
MINUTE = 60
BEFORE = (4 * MINUTE - 1, 8 * MINUTE - 1)
"""Last seconds before two restarts."""


def stretches(*parts: tuple[int, float]) -> Floats:
    """How many times slower than alone, of so many seconds each."""
    return np.concatenate([np.full(seconds, slower) for seconds, slower in parts])


def told(
    slower: Floats,
    *,
    lost: Floats | None = None,
    policy: BaselinePolicy | None = None,
    restarts: Sequence[int] = (),
    unmeasured: Sequence[int] = (),
    reloads: Sequence[int] = (),
    cooldown_seconds: float = 0.0,
) -> list[tuple[int, int | None]]:
    """Seconds in which verdicts on late answers open and close; `lost` is waited for a neighbour's CPU meanwhile.

    At each of the seconds `restarts` another judge goes on from the file of the one before. In those of `unmeasured` no
    answers are measured, and after those of `reloads` the same rules are read again.
    """
    info = CgroupInfo(1, "/web", "web", qos="LS", workload="web")
    ids, draw = np.array([1], np.uint64), np.random.default_rng(3)
    rules = tuple(msgspec.structs.replace(rule, cooldown_seconds=cooldown_seconds) for rule in default_rules())
    judge = Judge(JudgeSettings(rules=rules, baselines=policy or BaselinePolicy()))
    took = np.cumsum(100 * 0.010 * slower * draw.lognormal(0, 0.05, len(slower)))
    waited = np.zeros(len(slower)) if lost is None else np.cumsum(lost)
    found: list[tuple[int, int | None]] = []
    for second in range(len(slower)):
        if second in restarts:
            saved = encode(judge.baselines, WALL + second - 1, judge.told_times())
            judge = Judge(judge.settings, decode(saved, WALL + second, judge.settings.baselines))
            if found and found[-1][1] is None:
                found[-1] = (found[-1][0], second)
        columns = {
            "turnaround.requests": np.array([100 * second], np.uint64),
            "turnaround.sum_ns": np.array([took[second] * 1e9]).astype(np.uint64),
            "cpu.oncpu_ns": np.array([second * 5 * 10**8], np.uint64),
            "cpu.wait_neighbour_ns": np.array([waited[second] * 1e9]).astype(np.uint64),
        }
        if second in unmeasured:
            columns = {name: column for name, column in columns.items() if not name.startswith("turnaround.")}
        frame = Frame(second * 10**9, (WALL + second) * 10**9, (info,), {CGROUP: Table({"cgroup": ids}, columns)})
        verdicts = judge.step(frame)
        if second in reloads:
            judge.replace_rules(judge.settings.rules)
        for verdict in verdicts:
            if verdict.rule == "turnaround" and verdict.state is VerdictState.OPEN:
                found.append((second, None))
            if verdict.rule == "turnaround" and verdict.state is VerdictState.CLOSE:
                found[-1] = (found[-1][0], second)
    return found


def test_a_neighbour_from_the_start_is_told_once_the_service_was_alone() -> None:
    (first, *others) = told(stretches((10 * MINUTE, 3.0), (10 * MINUTE, 1.0), (5 * MINUTE, 3.0)))
    assert 20 * MINUTE <= first[0] <= 20 * MINUTE + 6
    assert first[1] is None, "open to the end"
    assert others == []


def test_a_verdict_that_was_open_when_the_agent_ended_opens_again_in_spite_of_a_cool_down() -> None:
    slower = stretches((3 * MINUTE, 1.0), (4 * MINUTE, 1.9))
    first, again = told(slower, restarts=(5 * MINUTE,), cooldown_seconds=3600.0)
    assert first == (first[0], 5 * MINUTE)
    assert 5 * MINUTE < again[0] <= 5 * MINUTE + 10


@pytest.mark.parametrize(
    ("every_seconds", "latest_minutes"),
    [pytest.param(MINUTE, 8, id="a-tenth-each-minute"), pytest.param(5 * MINUTE, 45, id="a-tenth-each-five-minutes")],
)
def test_a_creep_is_told(every_seconds: int, latest_minutes: int) -> None:
    second = np.arange(60 * MINUTE)
    (first, *_) = told(np.clip(1.1 ** ((second - 900) // every_seconds), 1.0, 3.0))
    assert 900 < first[0] <= 900 + latest_minutes * MINUTE


def test_a_level_that_rises_as_a_day_does_is_not_told() -> None:
    """Twice as slow within six hours."""
    second = np.arange(6 * 3600)
    assert told(2.0 ** (second / len(second))) == []


def test_what_was_seen_directly_to_be_anothers_doing_is_never_learned() -> None:
    """More than an hour of it, and then the same slowness without a trace."""
    slower = stretches((5 * MINUTE, 1.0), (75 * MINUTE, 3.0), (3 * MINUTE, 1.0), (3 * MINUTE, 3.0))
    second = np.arange(len(slower))
    lost = np.where((second >= 5 * MINUTE) & (second < 80 * MINUTE), 0.5, 0.0)
    assert told(slower, lost=lost)[-1][0] >= 83 * MINUTE


@pytest.mark.parametrize(
    ("restarts", "unmeasured", "reloads"),
    [
        pytest.param((), (), (), id="in-one-run"),
        pytest.param((6 * MINUTE, 10 * MINUTE), (), (), id="restarted-between-two-verdicts"),
        pytest.param((4 * MINUTE, 8 * MINUTE), (), (), id="restarted-within-a-verdict"),
        pytest.param((6 * MINUTE, 6 * MINUTE + 1, 6 * MINUTE + 2), (), (), id="ended-before-it-judged"),
        pytest.param((4 * MINUTE, 8 * MINUTE), BEFORE, (), id="restarted-after-an-unmeasured-tick"),
        pytest.param((4 * MINUTE, 8 * MINUTE), (), BEFORE, id="restarted-after-rules-were-read-again"),
    ],
)
def test_a_level_that_comes_and_goes_is_told_for_the_same_time_in_all_as_one_that_stays(
    restarts: Sequence[int], unmeasured: Sequence[int], reloads: Sequence[int]
) -> None:
    """Two levels of two minutes each, and five minutes of verdicts until one counts as usual; then a third level."""
    both = stretches((3 * MINUTE, 1.0), *[(2 * MINUTE, 1.9), (2 * MINUTE, 1.0)] * 5)
    policy = BaselinePolicy(exclude_seconds=300)
    found = told(
        np.concatenate([both, stretches((3 * MINUTE, 8.0))]),
        policy=policy,
        restarts=restarts,
        unmeasured=unmeasured,
        reloads=reloads,
    )
    *earlier, (opened, closed) = found
    assert 300 <= sum(end - begin for begin, end in earlier if end is not None) <= 300 + 2 * MINUTE
    assert max(begin for begin, _end in earlier) < 3 * MINUTE + 3 * 4 * MINUTE
    assert opened >= len(both), "what lies above the accepted level is told anew"
    assert closed is None, "and for the whole time"


def sample(value: float | Sequence[float]) -> BaselineSample:
    values = np.atleast_1d(np.asarray(value, dtype=np.float64))
    kind = np.full(len(values), int(LoadKind.REQUESTS_PER_SECOND))
    return BaselineSample([WorkloadKey("w")] * len(values), np.full(len(values), 100.0), kind, {"turnaround": values})


def learned(value: float, begin: float, seconds: int) -> Baselines:
    baselines = Baselines()
    for second in range(seconds):
        baselines.learn(sample(value), begin + second)
    return baselines


def test_the_fleet_replaces_what_a_slow_start_has_taught_and_not_what_is_old() -> None:
    fleet = learned(0.01, WALL, 300).records(WALL + 300.0)
    slow = learned(0.03, WALL, 300)
    assert slow.borrow(fleet, WALL + 2 * 3600.0) == 0, "it is two hours old"
    assert slow.borrow(fleet, WALL + 300.0) == 1
    assert slow.borrow(fleet, WALL + 300.0) == 0
    for second in range(300, 900):
        slow.learn(sample(0.03), WALL + second)
    judged = slow.judge(sample(0.03), WALL + 900.0)["turnaround"]
    assert judged.expected[0] == pytest.approx(0.01, rel=0.1)
    assert judged.score[0] > 8


def test_surroundings_teach_at_any_level() -> None:
    baselines = Baselines()
    for second in range(1200):
        traffic = BaselineSample(
            [WorkloadKey("w")],
            np.ones(1),
            np.zeros(1, np.int64),
            {"others": np.array([1e9 if second > 400 else 0.0])},
            frozenset(("others",)),
        )
        baselines.learn(traffic, WALL + second)
    assert baselines.cells.mass[0] / baselines.cells.weight_at(WALL + 1200.0) == pytest.approx(1200, rel=0.01)


def test_an_accepted_level_is_usual_at_once_however_long_the_history() -> None:
    (record,) = learned(0.01, WALL, 300).records(WALL + 300.0)
    baselines = Baselines()
    many = replace(record, weight=record.weight * 1000, counts=tuple(1000 * count for count in record.counts))
    baselines.absorb([many], WALL + 300.0)
    for second in range(300, 480):
        baselines.learn(sample(0.019), WALL + second, accepted=np.array([True]))
    judged = baselines.judge(sample(0.019), WALL + 480.0)["turnaround"]
    assert judged.expected[0] == pytest.approx(0.01, rel=0.1)
    assert 0.0185 < judged.upper[0] < 0.024
    assert baselines.judge(sample(0.019), WALL + 4 * 86_400.0)["turnaround"].upper[0] < 0.012, "it was not seen again"


def test_what_is_told_as_unusual_teaches_at_an_accepted_level_only() -> None:
    baselines, yes = learned(0.01, WALL, 300), np.array([True])

    def learned_of(value: float, begin: int) -> int:
        before = int(baselines.cells.samples[0])
        for second in range(begin, begin + 200):
            baselines.learn(sample(value), WALL + second, unusual=yes)
        return int(baselines.cells.samples[0]) - before

    assert learned_of(0.02, 300) == 0
    for second in range(500, 600):
        baselines.learn(sample(0.02), WALL + second, accepted=yes)
    assert learned_of(0.02, 600) == 200
    assert learned_of(0.08, 800) == 0


def test_an_acceptance_of_long_ago_makes_no_level_usual() -> None:
    (record,) = learned(0.01, WALL, 300).records(WALL + 300.0)
    slow = learned(0.03, WALL, 300)
    slow.borrow([replace(record, kept_until_seconds=WALL - 1.0)], WALL + 300.0)
    assert slow.cells.levels.columns["ordinary"][0] == pytest.approx(np.log2(0.01), abs=0.2)


def test_an_accepted_level_survives_a_restart() -> None:
    baselines = learned(0.01, WALL, 300)
    for second in range(300, 600):
        baselines.learn(sample(0.04), WALL + second, accepted=np.array([True]))
    again = Baselines()
    again.absorb(baselines.records(WALL + 600.0), WALL + 600.0)
    before = again.cells.samples[0]
    for second in range(600, 700):
        again.learn(sample(0.04), WALL + second)
    assert again.cells.samples[0] == before + 100
