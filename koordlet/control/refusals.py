"""Refusals of the response's intents, from the enforcer's events of a step: what the response must know of them."""

from collections.abc import Iterable, Mapping

from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EVICT, EnforcerEvent
from koordlet.response.policy import Refusal
from koordlet.response.rungs.rung import STRATEGY
from koordlet.response.steps import Refused

_REACH: Mapping[Outcome, Refused] = {
    Outcome.REFUSED: Refused.FOR_NOW,
    Outcome.PROTECTED: Refused.CULPRIT,
    Outcome.GONE: Refused.RUNG,
    Outcome.UNSUPPORTED: Refused.RUNG,
    Outcome.FAILED: Refused.RUNG,
    Outcome.CONFLICT: Refused.FOR_NOW,
    Outcome.OVER_BUDGET: Refused.FOR_NOW,
    Outcome.COOLDOWN: Refused.FOR_NOW,
    Outcome.DISRUPTION_BUDGET: Refused.FOR_NOW,
    Outcome.FOREIGN_WRITE: Refused.FOR_NOW,
    Outcome.BACKING_OFF: Refused.FOR_NOW,
    Outcome.JOURNAL_UNAVAILABLE: Refused.FOR_NOW,
}
"""Outcomes other than these are no refusals.

Another program that writes a file back owns it, and an operator who stops all actions means the harder ones, too: the
response waits instead of trying something else.
"""
_ONE_SHOT = frozenset({EVICT, "reclaim"})


def refusals(events: Iterable[EnforcerEvent]) -> list[Refusal]:
    """Return the response's intents that were not carried out; the widest reach of those for one target and knob."""
    found: dict[tuple[str, str], Refused] = {}
    order = list(Refused)
    for event in events:
        reach = _REACH.get(event.outcome)
        if event.strategy != STRATEGY or reach is None:
            continue
        knob = "" if event.knob in _ONE_SHOT else event.knob
        if not knob and reach is not Refused.FOR_NOW:
            reach = Refused.RUNG  # evictions are allowed separately
        known = found.get((event.target, knob), reach)
        found[event.target, knob] = max(known, reach, key=order.index)
    return [Refusal(target, knob, reach) for (target, knob), reach in found.items()]
