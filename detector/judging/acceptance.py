"""Verdicts that last so long that baselines learn from their victims again: said once, in a line of its own."""

from collections.abc import Sequence

import msgspec

from api.verdict_text import ACCEPTED
from api.verdicts import Verdict, VerdictState, is_self_inflicted


def with_acceptance(
    verdicts: Sequence[Verdict],
    still_open: Sequence[Verdict],
    before_seconds: float,
    now_seconds: float,
    exclude_seconds: float,
) -> list[Verdict]:
    """The lines of a tick, with an update for each open verdict that was `exclude_seconds` old between two frames.

    Losses of the victim's own making are learned from the first tick on, so nothing is said of them.
    """
    changed = {(verdict.victim, verdict.rule): verdict for verdict in verdicts}
    for verdict in still_open:
        due = verdict.since + exclude_seconds
        key = (verdict.victim, verdict.rule)
        if not before_seconds < due <= now_seconds or is_self_inflicted(verdict):
            continue
        line = changed.get(key, msgspec.structs.replace(verdict, time=now_seconds, state=VerdictState.UPDATE))
        if line.state is not VerdictState.CLOSE:
            changed[key] = msgspec.structs.replace(line, evidence={**line.evidence, ACCEPTED: 1.0})
    return sorted(changed.values(), key=lambda verdict: (verdict.victim, verdict.rule))
