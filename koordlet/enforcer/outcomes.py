"""Results of each strategy's intents in one step. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from api.intents import Intent
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, knob_name

IntentKey = tuple[str, str, str]
"""Strategy, target and knob."""


class IntentResult(StrEnum):
    """Result of an intent."""

    REQUESTED = "requested"
    """Counts every intent."""
    APPLIED = "applied"
    """Done, or in effect already."""
    CONFLICT = "conflict"
    """Another strategy's intent won."""
    DECLINED = "declined"
    """Settings, budgets, protection or the kernel did not allow it."""


_RESULTS: Mapping[Outcome, IntentResult] = {
    Outcome.SET: IntentResult.APPLIED,
    Outcome.UNCHANGED: IntentResult.APPLIED,
    Outcome.RECLAIMED: IntentResult.APPLIED,
    Outcome.TERMINATED: IntentResult.APPLIED,
    Outcome.KILLED: IntentResult.APPLIED,
    Outcome.EVICTING: IntentResult.APPLIED,
    Outcome.EVICTED: IntentResult.APPLIED,
    Outcome.DISRUPTION_BUDGET: IntentResult.DECLINED,
    Outcome.CONFLICT: IntentResult.CONFLICT,
    Outcome.OVERLAID: IntentResult.CONFLICT,
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


def intent_results(
    intents: Iterable[Intent], events: Iterable[EnforcerEvent]
) -> Mapping[tuple[str, IntentResult], int]:
    """Number of one step's intents by (strategy, result); an intent that failed at one attribute was declined.

    An intent for the value that another strategy set is in none but `REQUESTED`: it lost nothing.
    """
    requested = {(intent.strategy, intent.target, knob_name(intent)) for intent in intents}
    results: dict[IntentKey, IntentResult] = {}
    for event in events:
        key, result = (event.strategy, event.target, event.knob), _RESULTS.get(event.outcome)
        if key in requested and result is not None:
            results[key] = min(result, results.get(key, result), key=_WORST_FIRST.index)
    counts = Counter((strategy, result) for (strategy, _, _), result in results.items())
    return counts + Counter((strategy, IntentResult.REQUESTED) for strategy, _, _ in requested)
