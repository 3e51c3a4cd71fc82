"""Verdicts by usual values that last so long that these are learned from their victims: said once, in a line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from api.verdict_text import ACCEPTED, is_by_usual_values
from api.verdicts import Verdict, VerdictState


@dataclass(frozen=True, slots=True)
class TickTimes:
    """Wall-clock times of a tick's frame and of the one before it."""

    before_seconds: float
    now_seconds: float


def with_acceptance(
    verdicts: Sequence[Verdict],
    still_open: Sequence[Verdict],
    calmed: Mapping[tuple[str, str], float],
    times: TickTimes,
    exclude_seconds: float,
    earlier_seconds: Mapping[tuple[str, str], float],
) -> list[Verdict]:
    """The lines of a tick, with an update for each open verdict that was told for `exclude_seconds` between two frames.

    The time for which earlier verdicts of the victim and rule were open counts: `earlier_seconds` of open ones, and
    the values of `calmed`.
    Nothing is said of losses that were seen: those of the victim's own making are learned from the first tick on, and
    from others' nothing is learned. An older verdict by usual values closes as accepted: the loss may be there as
    before, and only count as usual. That is said only of `calmed`, victim and rule of those whose rule is not met any
    more: others close with their cgroup or their rule.
    """
    changed = {(verdict.victim, verdict.rule): verdict for verdict in verdicts}
    for key in changed.keys() & set(calmed):
        changed[key] = _closing(changed[key], exclude_seconds - calmed[key])
    for verdict in still_open:
        key = (verdict.victim, verdict.rule)
        due = verdict.since + exclude_seconds - earlier_seconds.get(key, 0.0)
        if not times.before_seconds < due <= times.now_seconds or not is_by_usual_values(verdict):
            continue
        line = changed.get(key, msgspec.structs.replace(verdict, time=times.now_seconds, state=VerdictState.UPDATE))
        if line.state is not VerdictState.CLOSE:
            changed[key] = _accepted(line)
    return sorted(changed.values(), key=lambda verdict: (verdict.victim, verdict.rule))


def _closing(verdict: Verdict, after_seconds: float) -> Verdict:
    lasted = verdict.time - verdict.since
    closes = verdict.state is VerdictState.CLOSE and lasted >= after_seconds
    return _accepted(verdict) if closes and is_by_usual_values(verdict) else verdict


def _accepted(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, evidence={**verdict.evidence, ACCEPTED: 1.0})
