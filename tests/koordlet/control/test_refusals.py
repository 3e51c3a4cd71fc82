"""What the response is told of the enforcer's refusals."""

import pytest

from koordlet.control.refusals import refusals
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent
from koordlet.response.policy import Refusal
from koordlet.response.steps import Refused


def event(outcome: Outcome, *, strategy: str = "response", knob: str = "cpu.idle", file: str = "") -> EnforcerEvent:
    return EnforcerEvent(strategy=strategy, target="/batch/hog", knob=knob, file=file, outcome=outcome)


@pytest.mark.parametrize(
    ("outcome", "knob", "reach"),
    [
        (Outcome.PROTECTED, "cpu.idle", Refused.CULPRIT),
        (Outcome.REFUSED, "cpu.idle", Refused.FOR_NOW),
        (Outcome.PROTECTED, "evict", Refused.RUNG),
        (Outcome.REFUSED, "evict", Refused.FOR_NOW),
        (Outcome.COOLDOWN, "evict", Refused.FOR_NOW),
        (Outcome.UNSUPPORTED, "cpu.idle", Refused.RUNG),
        (Outcome.FAILED, "cpu.idle", Refused.RUNG),
        (Outcome.OVER_BUDGET, "cpu.idle", Refused.FOR_NOW),
        (Outcome.FOREIGN_WRITE, "cpu.idle", Refused.FOR_NOW),
        (Outcome.BACKING_OFF, "cpu.idle", Refused.FOR_NOW),
    ],
)
def test_refusals(outcome: Outcome, knob: str, reach: Refused) -> None:
    assert refusals([event(outcome, knob=knob)]) == [Refusal("/batch/hog", "" if knob == "evict" else knob, reach)]


@pytest.mark.parametrize("outcome", [Outcome.SET, Outcome.UNCHANGED, Outcome.RESTORED, Outcome.EVICTING])
def test_what_is_done_is_no_refusal(outcome: Outcome) -> None:
    assert refusals([event(outcome)]) == []


def test_strategies_are_told_elsewhere() -> None:
    assert refusals([event(Outcome.PROTECTED, strategy="cpu_suppress")]) == []


def test_the_widest_of_several_attributes_counts() -> None:
    events = [event(Outcome.OVER_BUDGET, file="a"), event(Outcome.PROTECTED, file="b"), event(Outcome.FAILED, file="c")]
    assert refusals(events) == [Refusal("/batch/hog", "cpu.idle", Refused.CULPRIT)]
