"""Log lines of verdicts: each change once, and a bounded number in one tick. Pure."""

import logging
from collections.abc import Callable, Iterator, Sequence

from api.verdicts import Verdict, VerdictState, in_words

MOST_LINES = 20
"""Lines of one tick; the others are counted in one more line."""
_WORSE = 2.0
"""An open verdict is logged again when its loss grew by this factor since it was logged."""


class VerdictLog:
    """Logs openings and closings, and updates only where the loss grew much or the first culprit changed."""

    def __init__(self, name_of: Callable[[str], str] = str) -> None:
        self._name_of = name_of
        self._said: dict[tuple[str, str], Verdict] = {}

    def lines(self, verdicts: Sequence[Verdict]) -> Iterator[tuple[int, str]]:
        """Yield level of `logging` and line for the notable verdicts of one tick."""
        worth = [verdict for verdict in verdicts if self._is_worth_it(verdict)]
        for verdict in worth[:MOST_LINES]:
            level = logging.WARNING if verdict.state is VerdictState.OPEN else logging.INFO
            yield level, in_words(verdict, self._name_of)
        if len(worth) > MOST_LINES:
            yield logging.WARNING, f"and {len(worth) - MOST_LINES} more in the same tick; --json has them all"

    def _is_worth_it(self, verdict: Verdict) -> bool:
        key = (verdict.victim, verdict.rule)
        said = self._said.get(key)
        if verdict.state is VerdictState.CLOSE:
            self._said.pop(key, None)
            return True
        if said is not None and verdict.state is VerdictState.UPDATE:
            lost, before = verdict.lost_seconds_per_second, said.lost_seconds_per_second
            is_worse = lost >= _WORSE * before
            is_other = _first(verdict) not in ("", _first(said)) and lost * _WORSE >= before
            if not is_worse and not is_other:
                return False
        self._said[key] = verdict
        return True


def _first(verdict: Verdict) -> str:
    return verdict.culprits[0].path if verdict.culprits else ""
