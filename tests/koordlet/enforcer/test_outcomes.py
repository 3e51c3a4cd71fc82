"""What became of wishes: each counts once, by the worst of its places."""

import pytest

from api.intents import Evict, Intent, Knob, Setting
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import Event, of_intent
from koordlet.enforcer.outcomes import Fate, tally


def wish(strategy: str, target: str, knob: Knob = Knob.CPU_MAX) -> Setting:
    return Setting(strategy=strategy, target=target, reason="", knob=knob, value="1")


A, B, C = wish("a", "/x"), wish("b", "/x"), wish("a", "/y")
END = Evict(strategy="a", target="/x", reason="")


def told(intent: Intent, outcome: Outcome) -> Event:
    return of_intent(intent, outcome, "")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], {("a", Fate.WANTED): 3, ("b", Fate.WANTED): 1}),
        (
            [told(A, Outcome.SET), told(B, Outcome.CONFLICT), told(C, Outcome.STANDS), told(END, Outcome.REFUSED)],
            {
                ("a", Fate.WANTED): 3,
                ("a", Fate.GRANTED): 2,
                ("a", Fate.DECLINED): 1,
                ("b", Fate.WANTED): 1,
                ("b", Fate.CONFLICT): 1,
            },
        ),
        (
            [told(A, Outcome.SET), told(A, Outcome.SET), told(A, Outcome.FAILED)],
            {("a", Fate.WANTED): 3, ("a", Fate.DECLINED): 1, ("b", Fate.WANTED): 1},
        ),
        (  # what goes back is nobody's wish any more
            [told(wish("a", "/gone"), Outcome.RESTORED), told(wish("a", "/gone"), Outcome.FAILED)],
            {("a", Fate.WANTED): 3, ("b", Fate.WANTED): 1},
        ),
    ],
)
def test_every_wish_counts_once(events: list[Event], expected: dict[tuple[str, Fate], int]) -> None:
    assert dict(tally([A, B, C, END], events)) == expected
