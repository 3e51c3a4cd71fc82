"""Cgroups that lack a knob: of what is unsupported nothing is looked up in most steps.

What was lacking once only is looked up in the next step: a runtime makes a cgroup in one hierarchy after the other.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from api.intents import Setting
from koordlet.enforcer.conflicts import Owner
from koordlet.host.knobs.spec import Scope
from koordlet.host.knobs.table import KNOBS

_MOST_SECONDS = 5
"""After which a knob is looked up again at the latest: a fifth of those that are lacking in each second."""


@dataclass(frozen=True, slots=True)
class _Lack:
    value: str
    """That was asked for."""
    reason: str
    first_seconds: float
    """Monotonic time of the first look; a step may look twice."""
    until_seconds: float = -math.inf
    """Monotonic time until which it holds; minus infinity in the step of the first look."""


class Lacks:
    """Reasons why settings are unsupported, each for a few seconds."""

    def __init__(self) -> None:
        self._known: dict[Owner, _Lack] = {}
        self._turn = 0

    def reason(self, setting: Setting, now: float) -> str:
        """Return why a setting is unsupported; empty where that has to be looked up."""
        lack = self._known.get((setting.target, setting.knob))
        return lack.reason if lack and lack.value == setting.value and now < lack.until_seconds else ""

    def note(self, setting: Setting, reason: str, now: float) -> None:
        """Take note of what was looked up; of knobs of cgroups alone."""
        if KNOBS[setting.knob].scope is not Scope.CGROUP:
            return
        owner = (setting.target, setting.knob)
        lack = self._known.get(owner)
        if lack is None or (lack.value, lack.reason) != (setting.value, reason):
            self._known[owner] = _Lack(setting.value, reason, now)
        elif lack.first_seconds < now >= lack.until_seconds:
            self._known[owner] = replace(lack, until_seconds=self._next_look(lack.until_seconds, now))

    def _next_look(self, until: float, now: float) -> float:
        """When a lack is looked up again: in turn after the first time, at equal distances after that."""
        if until == -math.inf:
            self._turn = self._turn % _MOST_SECONDS + 1
            return now + self._turn
        return until + _MOST_SECONDS * ((now - until) // _MOST_SECONDS + 1)

    def keep(self, targets: Collection[str]) -> None:
        """Forget all other cgroups."""
        self._known = {owner: lack for owner, lack in self._known.items() if owner[0] in targets}
