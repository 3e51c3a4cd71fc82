"""The part of each told loss that its victim is entitled to, as evidence: what fair division costs is told apart from
what others take (`detector/entitlement.py`).
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from api.verdict_text import ENTITLED
from api.verdicts import Verdict, VerdictState
from koordlet.tick import Tick

MOST_LINES = 32
"""Verdicts of one tick that are split, the largest losses first; each costs a walk up the tree."""


class EntitledParts:
    """`take` splits what a tick tells, `of` adds it to the tick's verdicts; open ones keep that of their last line."""

    def __init__(self, entitled_part: Callable[[Verdict], float | None]) -> None:
        """`entitled_part` is of the state that the control loop has seen in this tick."""
        self._entitled_part = entitled_part
        self._parts: dict[tuple[str, str], float] = {}

    def take(self, tick: Tick) -> None:
        """Split the lines that open or change; forget those of verdicts that are closed."""
        still_open = {_key(verdict) for verdict in tick.open_verdicts}
        self._parts = {key: part for key, part in self._parts.items() if key in still_open}
        lines = [verdict for verdict in tick.verdicts if verdict.state is not VerdictState.CLOSE]
        lines.sort(key=lambda verdict: -verdict.lost_seconds_per_second)
        for verdict in lines:
            self._parts.pop(_key(verdict), None)
        for verdict in lines[:MOST_LINES]:
            part = self._entitled_part(verdict)
            if part is not None:
                self._parts[_key(verdict)] = part

    def of(self, tick: Tick) -> Tick:
        """Return the tick with the parts in the evidence of its verdicts."""
        if not self._parts:
            return tick
        told = [self._with_part(verdict) for verdict in tick.verdicts]
        return replace(tick, verdicts=told, open_verdicts=tuple(map(self._with_part, tick.open_verdicts)))

    def _with_part(self, verdict: Verdict) -> Verdict:
        part = self._parts.get(_key(verdict))
        if part is None or verdict.state is VerdictState.CLOSE:
            return verdict
        return msgspec.structs.replace(verdict, evidence={**verdict.evidence, ENTITLED: part})


def _key(verdict: Verdict) -> tuple[str, str]:
    return verdict.victim, verdict.rule
