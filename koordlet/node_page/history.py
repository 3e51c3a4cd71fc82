"""Verdicts of the last half hour with their beginning and end, bounded; updated once a tick."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from api.verdicts import Verdict, VerdictState
from koordlet.node_page.values import Span

KEPT_SECONDS = 1800.0
_MOST = 200
"""Closed verdicts that are kept; open ones are bounded by the judge."""

Key = tuple[str, str]


class VerdictHistory:
    """Spans of verdicts, oldest first."""

    def __init__(self, kept_seconds: float = KEPT_SECONDS, most: int = _MOST) -> None:
        self._kept_seconds = kept_seconds
        self._open: dict[Key, Span] = {}
        self._closed: deque[Span] = deque(maxlen=most)

    def update(self, changed: Sequence[Verdict], open_verdicts: Iterable[Verdict], now: float) -> None:
        """Take the verdicts that opened, changed or closed, and those in effect after the tick."""
        for verdict in changed:
            key = (verdict.victim, verdict.rule)
            known = self._open.get(key)
            if verdict.state is not VerdictState.CLOSE:
                self._open[key] = _with(known, verdict)
            elif known is not None:
                self._closed.append(replace(self._open.pop(key), closed=verdict.time))
        present = {(verdict.victim, verdict.rule): verdict for verdict in open_verdicts}
        for key in [key for key in self._open if key not in present]:  # its cgroup went
            self._closed.append(replace(self._open.pop(key), closed=now))
        for key, verdict in present.items():
            if key not in self._open:  # open since before this agent started
                self._open[key] = _with(None, verdict)
        while self._closed and (self._closed[0].closed or 0.0) < now - self._kept_seconds:
            self._closed.popleft()

    def spans(self) -> tuple[Span, ...]:
        """Return all that are known, by their beginning."""
        return tuple(sorted((*self._closed, *self._open.values()), key=lambda span: span.opened))


def _with(known: Span | None, verdict: Verdict) -> Span:
    lost = verdict.lost_seconds_per_second
    if known is None:
        return Span(verdict.since or verdict.time, None, verdict, lost)
    return replace(known, last=verdict, worst=max(known.worst, lost))
