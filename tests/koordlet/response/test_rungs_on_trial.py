"""Trial, hold and release of rungs."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from api.intents import Knob
from detector.blame import Blame
from koordlet.response.observation import Observation
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import StepKind
from tests.koordlet.response.ticks import (
    BYSTANDER,
    CLASSES,
    HOG,
    WEB,
    blaming,
    knobs,
    live,
    look,
    verdict_on,
)


def test_the_first_rung_is_invisible_and_kept_when_its_lift_shows_that_it_helps() -> None:
    response = ResponsePolicy()
    first = response.step(look(0.0, [verdict_on()]))
    assert knobs(first) == [("/batch", Knob.CPU_IDLE, "1")]
    assert [step.kind for step in response.steps] == [StepKind.APPLIED]
    steps = live(response, 120, frozenset({"idle"}), start=1)
    lifts = [second for second, kind, _rung in steps if kind is StepKind.LIFTED]
    assert 25 <= lifts[0] <= 43  # about the hold after the trial
    assert [(second - lifts[0], kind) for second, kind, _rung in steps[:2]] == [
        (0, StepKind.LIFTED),
        (1, StepKind.KEPT),
    ]
    assert lifts[1] - lifts[0] >= 45  # the hold has doubled
    assert {rung for _second, _kind, rung in steps} == {"idle"}


def test_a_rung_that_does_not_help_is_taken_back_and_the_next_is_tried() -> None:
    steps = live(ResponsePolicy(), 16)
    assert [(kind, rung) for _second, kind, rung in steps[:5]] == [
        (StepKind.APPLIED, "idle"),
        (StepKind.REVERTED, "idle"),  # by the ticks before it: no lift is needed
        (StepKind.APPLIED, "cpuset"),
        (StepKind.LIFTED, "cpuset"),
        (StepKind.REVERTED, "cpuset"),
    ]


def test_a_rung_after_which_the_turnaround_grows_is_taken_back() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on()], turnaround=0.010))
    for second in range(1, 5):
        response.step(look(float(second), [verdict_on()], lost=0.0, turnaround=0.020))
    assert (response.steps[0].kind, response.steps[0].rung) == (StepKind.REVERTED, "idle")


def test_a_culprit_that_goes_quiet_is_released_in_seconds_and_one_that_returns_is_held_longer() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on()]))
    second = 1
    while response.active_rungs:
        response.step(look(float(second), [], lost=0.0, used=0.0))
        second += 1
    assert second <= 6
    response.step(look(float(second), [verdict_on()]))
    start = second
    while response.active_rungs:
        second += 1
        response.step(look(float(second), [], lost=0.0, used=0.0))
    assert 6 <= second - start <= 10


def test_the_hold_grows_when_a_culprit_comes_back() -> None:
    response = ResponsePolicy(ResponseSettings(hold_seconds=10.0))

    def seconds_held(start: float) -> float:
        response.step(look(start, [verdict_on()]))
        now = start
        while not any(step.kind is StepKind.RELEASED for step in response.steps):
            now += 1.0
            response.step(look(now, [], lost=0.0))
        return now - start

    first = seconds_held(0.0)
    assert 7.5 + 4 <= first < 12.5 + 6  # from the end of its trial
    assert 15.0 + 4 <= seconds_held(100.0) < 25.0 + 6


def test_flapping_verdicts_do_not_flap_the_rung() -> None:
    response = ResponsePolicy()
    applied = 0
    for second in range(60):
        lost = 0.01 if response.active_rungs else 0.5
        response.step(look(float(second), [verdict_on()] if second % 7 < 2 else [], lost=lost, used=1.0))
        applied += sum(step.kind is StepKind.APPLIED for step in response.steps)
    assert applied == 1


def test_what_others_cost_the_victim_is_no_reason_to_climb_on() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, [verdict_on(share=0.9)], lost=0.5))
    for second in range(1, 20):  # 0.3 s/s are still lost, but hardly to this culprit
        still = msgspec.structs.replace(verdict_on(share=0.1), lost_seconds_per_second=0.1)
        seen = look(second, [still], lost=0.3)
        wanted = response.step(blaming(seen, {HOG: 0.01, BYSTANDER: 0.29}))
    assert [knob for _path, knob, _value in knobs(wanted)] == ["cpu.idle"]


def test_a_rung_is_judged_by_what_its_own_culprit_costs() -> None:
    """The hog has a fifth of the loss, and idle takes all of it: the rest is another's, and proves nothing."""
    response = ResponsePolicy()
    response.step(blaming(look(0.0, [verdict_on(share=0.2)], lost=0.5), {HOG: 0.1, BYSTANDER: 0.4}))
    steps = []
    for second in range(1, 8):
        response.step(blaming(look(float(second), [verdict_on(share=0.2)], lost=0.4), {HOG: 0.0, BYSTANDER: 0.4}))
        steps += [(step.kind, step.rung, step.after) for step in response.steps]
    assert steps == []  # the loss to this culprit is within its budget: held until its lift
    assert response.active_rungs == {(HOG, "cpu"): ("idle",)}


def test_a_rung_is_not_kept_for_what_another_culprit_stopped() -> None:
    response = ResponsePolicy()
    response.step(blaming(look(0.0, [verdict_on(share=0.5)]), {HOG: 0.3, BYSTANDER: 0.3}))
    kinds = []
    for second in range(1, 5):
        response.step(blaming(look(float(second), [verdict_on()], lost=0.3), {HOG: 0.3}))
        kinds += [step.kind for step in response.steps]
    assert kinds[0] is StepKind.REVERTED


def test_a_rung_is_judged_by_the_victim_it_was_applied_for() -> None:
    """The first victim is cured; a second one that loses more must not undo that."""
    other = "/online/shop"
    classes = CLASSES | {other: "LS"}
    ids = {path: number for number, path in enumerate(classes, start=1)}

    def tick(second: int, first: float, second_victim: float) -> Observation:
        verdicts = [verdict_on()] if second == 0 else [verdict_on(victim=other)]
        seen = look(float(second), verdicts, classes=classes)
        rows = [(ids[WEB], first), (ids[other], second_victim)]
        victims = np.array([row for row, _amount in rows], dtype=np.uint64)
        amounts = np.array([amount for _row, amount in rows])
        order = np.argsort(victims)
        culprits = np.full(2, ids[HOG], dtype=np.uint64)
        return replace(seen, blame_of={"cpu": Blame(victims[order], culprits, amounts[order])}.get)

    response = ResponsePolicy()
    steps = []
    for second in range(5):
        response.step(tick(second, 0.6 if second == 0 else 0.0, 0.7))
        steps += [(step.kind, step.rung, step.after) for step in response.steps]
    assert {kind for kind, _rung, _after in steps} == {StepKind.APPLIED}
    assert response.active_rungs == {(HOG, "cpu"): ("idle",)}


def test_what_lives_in_the_culprit_counts_as_the_culprit() -> None:
    classes = CLASSES | {f"{HOG}/worker": ""}
    seen = blaming(look(0.0, classes=classes), {HOG: 0.1, f"{HOG}/worker": 0.2, BYSTANDER: 0.4})
    assert seen.lost_to(WEB, HOG, "cpu") == pytest.approx(0.3)
    assert seen.lost_to(WEB, HOG, "memory") == 0.5
    assert seen.lost_to("/not/there", HOG, "cpu") == 0.0


def test_what_a_culprit_waits_for_a_victim_counts_all_that_lives_in_both() -> None:
    inner = f"{WEB}/worker"
    seen = blaming(look(0.0, classes=CLASSES | {inner: "LS"}), {WEB: 0.1, inner: 0.2, BYSTANDER: 0.4}, HOG)
    assert seen.waits_for(HOG, WEB, "cpu") == pytest.approx(0.3)
    assert seen.waits_for(WEB, HOG, "cpu") == 0.0
    assert seen.waits_for(HOG, WEB, "memory") is None
