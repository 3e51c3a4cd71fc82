"""Life of verdicts: time to open, persistence through pulses, and culprits."""

from collections.abc import Sequence

import pytest

from api.verdicts import Severity, Verdict, VerdictState
from detector.judging.judge import JudgeSettings
from detector.registry import default_rules
from detector.rules import Rule
from tests.detector.made_frames import BATCH, CALM, OTHER, WEB, Tick, cgroup, contention, judged, without

MILD = contention(lost=0.2)
SEVERE = contention(lost=0.5)


def states(told: Sequence[Sequence[Verdict]], rule: str = "cpu-contention") -> list[list[VerdictState]]:
    return [[verdict.state for verdict in tick if verdict.rule == rule] for tick in told]


def test_a_severe_loss_that_was_seen_opens_in_its_first_tick() -> None:
    assert states(judged([CALM, SEVERE])) == [[], [VerdictState.OPEN]]


@pytest.mark.parametrize(
    "tick",
    [
        pytest.param(MILD, id="four-thresholds-are-not-severe"),
        pytest.param(Tick(SEVERE.columns, {(1, 2): 0.2}), id="most-of-it-unseen"),
        pytest.param(Tick({"cpu.wait_own_quota_ns": {1: 9e8}}), id="own-quota"),
    ],
)
def test_anything_less_needs_a_second_tick(tick: Tick) -> None:
    first, second = judged([CALM, tick, tick])[1:]
    assert first == []
    assert [verdict.state for verdict in second] == [VerdictState.OPEN]


@pytest.mark.parametrize("lost", [0.15, 0.5])
@pytest.mark.parametrize("off_seconds", [5, 9, 15, 20, 40])
def test_a_pulsing_culprit_is_told_within_two_seconds_and_makes_few_verdicts(lost: float, off_seconds: int) -> None:
    pulses = 12
    told = states(judged(([contention(lost=lost)] * 2 + [CALM] * off_seconds) * pulses))
    assert [VerdictState.OPEN] in told[:2]
    openings = sum(tick.count(VerdictState.OPEN) for tick in told)
    assert openings <= (1 if off_seconds < 10 else 4)
    lines = [state for tick in told for state in tick]
    assert lines.count(VerdictState.UPDATE) <= 2


def test_every_return_is_told_within_two_ticks_of_it() -> None:
    told = states(judged(([MILD] * 3 + [CALM] * 15) * 3))
    opened = [tick for tick, lines in enumerate(told) if VerdictState.OPEN in lines]
    assert opened == [1, 19]
    assert [VerdictState.CLOSE] in told[3:18]


def test_hold_goes_back_after_a_long_calm() -> None:
    told = states(judged([MILD] * 3 + [CALM] * 15 + [MILD] * 3 + [CALM] * 120 + [MILD] * 3 + [CALM] * 12))
    closed = [tick for tick, lines in enumerate(told) if VerdictState.CLOSE in lines]
    assert closed == [12, 40, 153]


def test_rules_may_ask_for_a_cooldown() -> None:
    rule = Rule(name="cpu-contention", any_of=("cpu_contention",), hold_seconds=2, cooldown_seconds=8)
    told = states(judged([MILD] * 2 + [CALM] * 3 + [MILD] * 12, settings=JudgeSettings(rules=(rule,))))
    opened = [tick for tick, lines in enumerate(told) if VerdictState.OPEN in lines]
    assert opened == [1, 11]


def test_a_loss_that_sways_is_told_once() -> None:
    told = states(judged([contention(lost=lost) for lost in [0.2, 0.25, 0.17, 0.23, 0.2, 0.26, 0.16, 0.2] * 3]))
    assert [state for lines in told for state in lines] == [VerdictState.OPEN]


def test_a_loss_that_doubles_for_good_is_told() -> None:
    told = states(judged([MILD] * 5 + [contention(lost=0.45)] * 5))
    assert [state for lines in told for state in lines] == [VerdictState.OPEN, VerdictState.UPDATE, VerdictState.UPDATE]


def test_another_culprit_is_told_and_equal_ones_do_not_take_turns() -> None:
    def both(one: float, two: float) -> Tick:
        return Tick({"cpu.wait_neighbour_ns": {1: 3e8}}, {(1, 2): one, (1, 3): two})

    swaying = [both(0.17, 0.13), both(0.13, 0.17)] * 8
    assert len([verdict for tick in judged(swaying) for verdict in tick]) == 1
    told = [v for tick in judged([both(0.25, 0.05)] * 5 + [both(0.05, 0.25)] * 5) for v in tick]
    assert [verdict.culprits[0].path for verdict in told] == ["/batch", "/other"]


def test_a_culprit_that_died_is_named() -> None:
    told = judged([CALM, MILD, without(MILD, 2), without(CALM, 2)])
    assert [culprit.path for verdict in told[2] for culprit in verdict.culprits] == ["/batch"]
    assert [culprit.ref.name for verdict in told[2] for culprit in verdict.culprits] == ["batch"]
    assert {verdict.victim_ref.name for verdict in told[2]} == {"web"}


def test_one_that_was_never_seen_is_called_gone() -> None:
    told = judged([CALM, contention(culprit=77)])
    assert [culprit.path for verdict in told[1] for culprit in verdict.culprits] == ["[gone]"]


def test_many_short_lives_make_one_culprit() -> None:
    storm = Tick({"cpu.wait_neighbour_ns": {1: 4e8}}, {(1, 1000 + one): 0.4 / 200 for one in range(200)})
    (verdict,) = judged([CALM, storm])[1]
    assert {culprit.path: culprit.share for culprit in verdict.culprits} == pytest.approx({"[gone]": 1.0})


def test_best_effort_work_waits_for_a_cpu_by_design_and_may_lose_more_to_others() -> None:
    modest = cgroup(1, "/web", qos="BE")
    assert judged([contention(lost=1.6)] * 5, (modest, BATCH)) == [[]] * 5
    assert all(rule.threshold_of(modest) >= 0.5 for rule in default_rules())


def test_an_update_tells_the_smoothed_loss_that_its_severity_is_about() -> None:
    lines = [v for tick in judged([contention(lost=2.0)] * 3 + [contention(lost=0.06)] * 8) for v in tick]
    assert [verdict.state for verdict in lines][:2] == [VerdictState.OPEN, VerdictState.UPDATE]
    assert all((verdict.severity is Severity.HIGH) == (verdict.lost_seconds_per_second >= 0.3) for verdict in lines)
    assert lines[1].evidence["cpu_contention.lost"] == pytest.approx(0.06)


def test_tasks_of_the_root_are_strangers_to_one_another() -> None:
    root = cgroup(9, "/")
    told = judged([Tick({"cpu.wait_self_ns": {9: 3e9, 1: 3e9}})] * 3, (root, WEB))
    assert {verdict.victim for tick in told for verdict in tick} == {"/web"}


POD, APP, SIDE = cgroup(1, "/pod"), cgroup(2, "/pod/app"), cgroup(3, "/pod-b")


def test_the_leaf_is_named_and_ones_own_subtree_is_no_neighbour() -> None:
    inner = Tick({"cpu.wait_neighbour_ns": {1: 5e8}}, {(1, 2): 0.5})
    assert judged([inner] * 4, (POD, APP, SIDE)) == [[]] * 4
    mixed = Tick({"cpu.wait_neighbour_ns": {1: 5e8}}, {(1, 2): 0.3, (1, 3): 0.2})
    (verdict,) = judged([mixed] * 2, (POD, APP, SIDE))[1]
    assert verdict.lost_seconds_per_second == pytest.approx(0.2)
    assert {culprit.path: culprit.share for culprit in verdict.culprits} == pytest.approx({"/pod-b": 1.0})


def test_tasks_of_the_root_are_neighbours() -> None:
    root = cgroup(9, "/")
    (verdict,) = judged([contention(culprit=9, lost=0.2)] * 2, (root, WEB, OTHER))[1]
    assert [culprit.path for culprit in verdict.culprits] == ["/"]
    (verdict,) = judged([contention(victim=9, culprit=1, lost=0.2)] * 2, (root, WEB, OTHER))[1]
    assert (verdict.victim, [culprit.path for culprit in verdict.culprits]) == ("/", ["/web"])


def test_pressure_of_a_parent_is_its_childrens() -> None:
    stalled = Tick({"pressure.cpu_some_us": {1: 5e5, 2: 5e5}})
    assert [verdict.victim for verdict in judged([stalled] * 2, (POD, APP, SIDE))[1]] == ["/pod/app"]
