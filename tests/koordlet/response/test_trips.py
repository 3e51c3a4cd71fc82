"""Trips of the kernel's tripwire: the first rung at once, and what it proves."""

from api.intents import Knob
from koordlet.response.policy import ResponsePolicy
from koordlet.response.steps import StepKind
from tests.koordlet.response.ticks import HOG, WEB, knobs, look, verdict_on


def test_a_trip_pulls_the_first_rung_and_it_is_taken_back_unless_it_helps() -> None:
    """Neither the peak that tripped nor a mean below it is evidence: the loss is the same without the rung."""
    response = ResponsePolicy()
    assert knobs(response.trip(look(0.0), HOG, WEB, resource="cpu", lost=0.8)) == [("/batch", Knob.CPU_IDLE, "1")]
    steps: list[StepKind] = []
    for second in range(1, 9):
        response.step(look(float(second), [], lost=0.3))
        steps += [step.kind for step in response.steps]
    assert steps == [StepKind.LIFTED, StepKind.REVERTED]
    assert not response.active_rungs


def test_a_trip_proves_nothing_where_nothing_is_lost_without_the_rung() -> None:
    response = ResponsePolicy()
    response.trip(look(0.0, lost=0.01), HOG, WEB, resource="cpu", lost=0.8)
    steps: list[StepKind] = []
    for second in range(1, 60):
        response.step(look(float(second), [], lost=0.01))
        steps += [step.kind for step in response.steps]
    assert steps == [StepKind.LIFTED, StepKind.RELEASED]


def test_one_that_was_tripped_before_its_first_tick_is_released_when_it_goes_quiet() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, lost=0.0, used=0.0))
    response.trip(look(0.0, lost=0.0, used=0.0), HOG, WEB, resource="cpu", lost=0.4)
    for second in range(1, 10):
        response.step(look(second, [verdict_on()], lost=0.4 if second < 2 else 0.0))
    assert response.active_rungs
    for second in range(10, 15):
        response.step(look(second, lost=0.0, used=0.0))
    assert not response.active_rungs


def test_a_tripped_rung_that_helps_is_kept_though_no_verdict_ever_opened() -> None:
    response = ResponsePolicy()
    response.step(look(0.0, lost=0.4))
    response.trip(look(0.0, lost=0.4), HOG, WEB, resource="cpu", lost=0.4)
    kinds = []
    for second in range(1, 60):
        wanted = response.step(look(second, lost=0.0 if response.active_rungs else 0.4))
        kinds += [step.kind for step in response.steps]
    assert knobs(wanted) == [("/batch", "cpu.idle", "1")]
    assert kinds == [StepKind.LIFTED, StepKind.KEPT]


def test_a_trip_in_a_lift_ends_it_but_not_where_the_pair_tripped_before() -> None:
    for trips_before in (False, True):
        response = ResponsePolicy()
        response.trip(look(0.0, lost=0.0), HOG, WEB, resource="cpu", lost=0.4)
        second = 1
        while not any(step.kind is StepKind.LIFTED for step in response.steps):
            response.step(look(float(second), lost=0.0))
            if trips_before and second == 10:
                assert response.trip(look(float(second), lost=0.0), HOG, WEB, resource="cpu", lost=0.4) == []
            second += 1
        wanted = response.trip(look(float(second), lost=0.0), HOG, WEB, resource="cpu", lost=0.4)
        assert (knobs(wanted) == [("/batch", "cpu.idle", "1")]) is not trips_before
