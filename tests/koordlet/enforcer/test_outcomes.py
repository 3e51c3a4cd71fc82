"""Results of intents: each counts once, by the worst of its attributes."""

import pytest

from api.intents import Evict, Intent, Knob, Setting
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, of_intent
from koordlet.enforcer.outcomes import IntentResult, intent_results


def intent(strategy: str, target: str, knob: Knob = Knob.CPU_MAX) -> Setting:
    return Setting(strategy=strategy, target=target, reason="", knob=knob, value="1")


A, B, C = intent("a", "/x"), intent("b", "/x"), intent("a", "/y")
END = Evict(strategy="a", target="/x", reason="")


def told(intent: Intent, outcome: Outcome) -> EnforcerEvent:
    return of_intent(intent, outcome, "")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], {("a", IntentResult.REQUESTED): 3, ("b", IntentResult.REQUESTED): 1}, id="no-events"),
        pytest.param(
            [told(A, Outcome.SET), told(B, Outcome.CONFLICT), told(C, Outcome.UNCHANGED), told(END, Outcome.REFUSED)],
            {
                ("a", IntentResult.REQUESTED): 3,
                ("a", IntentResult.APPLIED): 2,
                ("a", IntentResult.DECLINED): 1,
                ("b", IntentResult.REQUESTED): 1,
                ("b", IntentResult.CONFLICT): 1,
            },
            id="one-event-each",
        ),
        pytest.param(
            [told(A, Outcome.SET), told(A, Outcome.SET), told(A, Outcome.FAILED)],
            {("a", IntentResult.REQUESTED): 3, ("a", IntentResult.DECLINED): 1, ("b", IntentResult.REQUESTED): 1},
            id="failed-after-set",
        ),
        pytest.param(
            [told(intent("a", "/gone"), Outcome.RESTORED), told(intent("a", "/gone"), Outcome.FAILED)],
            {("a", IntentResult.REQUESTED): 3, ("b", IntentResult.REQUESTED): 1},
            id="restored-is-no-intent",
        ),
    ],
)
def test_every_intent_counts_once(events: list[EnforcerEvent], expected: dict[tuple[str, IntentResult], int]) -> None:
    assert dict(intent_results([A, B, C, END], events)) == expected
