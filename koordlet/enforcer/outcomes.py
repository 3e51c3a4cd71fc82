"""What became of each strategy's wishes in one step. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from api.intents import Evict, Intent, Setting
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import Event

Wish = tuple[str, str, str]
"""Strategy, target and knob."""


class Fate(StrEnum):
    """What a wish came to."""

    WANTED = "wanted"
    """All of them."""
    GRANTED = "granted"
    """It was done, or stands."""
    CONFLICT = "conflict"
    """Another strategy's wish went first."""
    DECLINED = "declined"
    """Settings, budgets, protection or the kernel did not allow it."""


_FATES: Mapping[Outcome, Fate] = {
    Outcome.SET: Fate.GRANTED,
    Outcome.STANDS: Fate.GRANTED,
    Outcome.RECLAIMED: Fate.GRANTED,
    Outcome.TERMINATED: Fate.GRANTED,
    Outcome.KILLED: Fate.GRANTED,
    Outcome.CONFLICT: Fate.CONFLICT,
    Outcome.REFUSED: Fate.DECLINED,
    Outcome.PROTECTED: Fate.DECLINED,
    Outcome.OVER_BUDGET: Fate.DECLINED,
    Outcome.COOLING: Fate.DECLINED,
    Outcome.HELD_OFF: Fate.DECLINED,
    Outcome.GONE: Fate.DECLINED,
    Outcome.UNSUPPORTED: Fate.DECLINED,
    Outcome.FAILED: Fate.DECLINED,
    Outcome.UNJOURNALLED: Fate.DECLINED,
}
_WORST_FIRST = (Fate.CONFLICT, Fate.DECLINED, Fate.GRANTED)


def tally(wishes: Iterable[Intent], events: Iterable[Event]) -> Mapping[tuple[str, Fate], int]:
    """(strategy, fate) to how many wishes of one step; a wish of which one place failed was declined.

    A wish for what another strategy got is in none but `WANTED`: nobody lost, and it is the other's.
    """
    wanted = {(wish.strategy, wish.target, _knob(wish)) for wish in wishes}
    fates: dict[Wish, Fate] = {}
    for event in events:
        wish, fate = (event.strategy, event.target, event.knob), _FATES.get(event.outcome)
        if wish in wanted and fate is not None:
            fates[wish] = min(fate, fates.get(wish, fate), key=_WORST_FIRST.index)
    counts = Counter((wish[0], fate) for wish, fate in fates.items())
    return counts + Counter((strategy, Fate.WANTED) for strategy, _target, _knob in wanted)


def _knob(wish: Intent) -> str:
    if isinstance(wish, Setting):
        return wish.knob.value
    return "evict" if isinstance(wish, Evict) else "reclaim"
