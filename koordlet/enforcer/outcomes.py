"""What became of each strategy's wishes in one step. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from api.intents import Evict, Intent, Setting
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent

Wish = tuple[str, str, str]
"""Strategy, target and knob."""


class IntentResult(StrEnum):
    """What a wish came to."""

    REQUESTED = "requested"
    """All of them."""
    APPLIED = "applied"
    """It was done, or stands."""
    CONFLICT = "conflict"
    """Another strategy's wish went first."""
    DECLINED = "declined"
    """Settings, budgets, protection or the kernel did not allow it."""


_FATES: Mapping[Outcome, IntentResult] = {
    Outcome.SET: IntentResult.APPLIED,
    Outcome.UNCHANGED: IntentResult.APPLIED,
    Outcome.RECLAIMED: IntentResult.APPLIED,
    Outcome.TERMINATED: IntentResult.APPLIED,
    Outcome.KILLED: IntentResult.APPLIED,
    Outcome.CONFLICT: IntentResult.CONFLICT,
    Outcome.REFUSED: IntentResult.DECLINED,
    Outcome.PROTECTED: IntentResult.DECLINED,
    Outcome.OVER_BUDGET: IntentResult.DECLINED,
    Outcome.COOLDOWN: IntentResult.DECLINED,
    Outcome.BACKING_OFF: IntentResult.DECLINED,
    Outcome.GONE: IntentResult.DECLINED,
    Outcome.UNSUPPORTED: IntentResult.DECLINED,
    Outcome.FAILED: IntentResult.DECLINED,
    Outcome.JOURNAL_UNAVAILABLE: IntentResult.DECLINED,
}
_WORST_FIRST = (IntentResult.CONFLICT, IntentResult.DECLINED, IntentResult.APPLIED)


def intent_results(wishes: Iterable[Intent], events: Iterable[EnforcerEvent]) -> Mapping[tuple[str, IntentResult], int]:
    """(strategy, fate) to how many wishes of one step; a wish of which one place failed was declined.

    A wish for what another strategy got is in none but `REQUESTED`: nobody lost, and it is the other's.
    """
    wanted = {(wish.strategy, wish.target, _knob(wish)) for wish in wishes}
    fates: dict[Wish, IntentResult] = {}
    for event in events:
        wish, fate = (event.strategy, event.target, event.knob), _FATES.get(event.outcome)
        if wish in wanted and fate is not None:
            fates[wish] = min(fate, fates.get(wish, fate), key=_WORST_FIRST.index)
    counts = Counter((wish[0], fate) for wish, fate in fates.items())
    return counts + Counter((strategy, IntentResult.REQUESTED) for strategy, _target, _knob in wanted)


def _knob(wish: Intent) -> str:
    if isinstance(wish, Setting):
        return wish.knob.value
    return "evict" if isinstance(wish, Evict) else "reclaim"
