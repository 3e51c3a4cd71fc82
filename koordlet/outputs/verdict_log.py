"""Log lines of verdicts: each change once, and a bounded number in one tick. Pure."""

import logging
from collections.abc import Callable, Iterator, Sequence

from api.verdict_text import in_words
from api.verdicts import Verdict, VerdictState

MOST_LINES = 20
"""Lines of one tick; the others are counted in one more line."""
_WORSE_FACTOR = 2.0
"""An open verdict is logged again when its loss grew by this factor since it was logged."""


class VerdictLog:
    """Logs openings and closings, and updates only where the loss grew much or the first culprit changed."""

    def __init__(self, name_of: Callable[[str], str] = str) -> None:
        self._name_of = name_of
        self._logged: dict[tuple[str, str], Verdict] = {}

    def lines(self, verdicts: Sequence[Verdict]) -> Iterator[tuple[int, str]]:
        """Yield level of `logging` and line for the notable verdicts of one tick."""
        notable = [verdict for verdict in verdicts if self._is_notable(verdict)]
        for verdict in notable[:MOST_LINES]:
            level = logging.WARNING if verdict.state is VerdictState.OPEN else logging.INFO
            yield level, in_words(verdict, self._name_of)
        if len(notable) > MOST_LINES:
            yield logging.WARNING, f"and {len(notable) - MOST_LINES} more in the same tick; --json has them all"

    def _is_notable(self, verdict: Verdict) -> bool:
        key = (verdict.victim, verdict.rule)
        logged = self._logged.get(key)
        if verdict.state is VerdictState.CLOSE:
            self._logged.pop(key, None)
            return True
        if logged is not None and verdict.state is VerdictState.UPDATE:
            lost, before = verdict.lost_seconds_per_second, logged.lost_seconds_per_second
            is_worse = lost >= _WORSE_FACTOR * before
            is_other = _first(verdict) not in ("", _first(logged)) and lost * _WORSE_FACTOR >= before
            if not is_worse and not is_other:
                return False
        self._logged[key] = verdict
        return True


def _first(verdict: Verdict) -> str:
    return verdict.culprits[0].path if verdict.culprits else ""
