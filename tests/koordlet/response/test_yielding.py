"""Rungs by which a culprit yields: they stand while it waits for a victim, and no lift costs the victim its tail."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from api.intents import Knob
from detector.blame import Blame
from koordlet.response.observation import Observation
from koordlet.response.policy import ResponsePolicy
from koordlet.response.steps import StepKind
from tests.koordlet.response.ticks import HOG, WEB, knobs, tick, verdict_on


def second_of(
    now: float,
    *,
    lost: float,
    culprit_waits: float = 0.4,
    used: Mapping[str, float] | None = None,
    allowed: frozenset[Knob] = frozenset(Knob),
) -> Observation:
    """A tick in which the hog costs the service `lost` and waits for it itself."""
    seen = tick(now, used=used or {WEB: 0.5, HOG: 3.0}, waits={WEB: lost, HOG: 3.0}, lost={HOG: lost}, knobs=allowed)
    ids = {info.path: info.id for info in seen.cgroups}
    rows = sorted([(ids[WEB], ids[HOG], lost), (ids[HOG], ids[WEB], culprit_waits)])
    rows = [row for row in rows if row[2] > 0]
    blame = Blame(
        np.array([row[0] for row in rows], dtype=np.uint64),
        np.array([row[1] for row in rows], dtype=np.uint64),
        np.array([row[2] for row in rows]),
    )
    return replace(seen, blame_of={"cpu": blame}.get)


def steps_of(response: ResponsePolicy, seen: Observation) -> list[tuple[float, StepKind, str]]:
    response.step(seen)
    return [(seen.now_seconds, step.kind, step.rung) for step in response.steps]


def test_a_rung_that_helps_stands_without_a_lift_while_the_culprit_waits_for_its_victim() -> None:
    response = ResponsePolicy()
    steps = []
    for second in range(1800):
        lost = 0.01 if response.active_rungs else 0.4
        steps += steps_of(response, second_of(float(second), lost=lost))
    assert [(kind, rung) for _at, kind, rung in steps] == [(StepKind.APPLIED, "idle")]


def test_it_is_given_back_when_the_culprit_waited_for_no_victim_in_its_hold() -> None:
    response = ResponsePolicy()
    steps = []
    for second in range(120):
        lost = 0.4 if second == 0 else 0.01
        waits = 0.4 if second < 50 else 0.02  # a twenty-fifth of what the service runs
        steps += steps_of(response, second_of(float(second), lost=lost, culprit_waits=waits))
    assert [kind for _at, kind, _rung in steps] == [StepKind.APPLIED, StepKind.RELEASED]
    assert steps[1][0] == pytest.approx(49 + 30)


def test_a_tripped_rung_is_held_by_what_its_culprit_waits_for() -> None:
    response = ResponsePolicy()
    response.step(second_of(0.0, lost=0.0, culprit_waits=0.0))
    assert response.trip(second_of(0.0, lost=0.0), HOG, WEB, resource="cpu", lost=0.5)
    steps = [step for second in range(1, 300) for step in steps_of(response, second_of(float(second), lost=0.01))]
    assert steps == []
    assert response.active_rungs == {(HOG, "cpu"): ("idle",)}


def test_a_small_loss_that_stays_brings_neither_a_lift_nor_a_limit() -> None:
    """A little above its budget of 0.025 s/s: half of the time of its neighbours is more than that is worth."""
    response = ResponsePolicy()
    steps = []
    for second in range(300):
        lost = 0.4 if not response.active_rungs else 0.04
        seen = replace(second_of(float(second), lost=lost), verdicts=(verdict_on(share=0.09),))
        steps += steps_of(response, seen if second else second_of(0.0, lost=0.4))
    assert [(kind, rung) for _at, kind, rung in steps] == [(StepKind.APPLIED, "idle")]


def test_a_loss_of_more_than_twice_the_budget_that_stays_brings_a_limit() -> None:
    response = ResponsePolicy()
    steps = []
    for second in range(30):
        seen = second_of(float(second), lost=0.15 if response.active_rungs else 0.4)
        steps += steps_of(response, seen if second > 2 else replace(seen, verdicts=()))
    assert [(kind, rung) for _at, kind, rung in steps[:3]] == [
        (StepKind.APPLIED, "idle"),
        (StepKind.KEPT, "idle"),
        (StepKind.APPLIED, "cpuset"),
    ]


def test_a_limit_is_released_when_its_victims_have_nothing_to_do() -> None:
    response = ResponsePolicy()
    limits = frozenset({Knob.CPU_MAX})
    kinds = []
    for second in range(20):
        lost = 0.01 if response.active_rungs else 0.4
        kinds += [kind for _at, kind, _rung in steps_of(response, second_of(second, lost=lost, allowed=limits))]
    assert kinds == [StepKind.APPLIED]
    wanted = []
    for second in range(20, 25):
        idle = second_of(float(second), lost=0.0, used={WEB: 0.0, HOG: 3.0}, allowed=limits)
        wanted.append(knobs(response.step(idle)))
        kinds += [step.kind for step in response.steps]
    assert kinds == [StepKind.APPLIED, StepKind.RELEASED]
    assert [bool(each) for each in wanted] == [True, True, False, False, False]


def test_a_trip_of_a_culprit_that_begins_now_is_answered_whatever_requests_took_before() -> None:
    for lost_before, is_answered in ((0.0, True), (0.4, False)):
        response = ResponsePolicy()
        for second in range(5):
            seen = second_of(float(second), lost=lost_before)
            seen = replace(seen, slowdown=np.zeros(len(seen.cgroups)))
            response.step(seen)
        assert bool(response.trip(seen, HOG, WEB, resource="cpu", lost=0.5)) is is_answered


def test_one_tick_of_loss_before_a_trip_is_too_new_for_requests_to_tell() -> None:
    response = ResponsePolicy()
    for second in range(5):
        seen = second_of(float(second), lost=0.08 if second == 4 else 0.0)  # below a verdict
        seen = replace(seen, slowdown=np.zeros(len(seen.cgroups)))
        response.step(replace(seen, verdicts=(verdict_on(),)) if second == 4 else seen)
    assert not response.active_rungs
    assert response.trip(seen, HOG, WEB, resource="cpu", lost=0.5)
