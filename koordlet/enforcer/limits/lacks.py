"""Cgroups that lack a knob: of what is unsupported nothing is looked up in most steps.

What was lacking once only is looked up in the next step: a runtime makes a cgroup in one hierarchy after the other.
"""

import math
from collections.abc import Collection

from api.intents import Setting
from koordlet.enforcer.conflicts import Owner
from koordlet.host.knobs.spec import Scope
from koordlet.host.knobs.table import KNOBS

_MOST_SECONDS = 5
"""After which a knob is looked up again at the latest: a fifth of those that are lacking in each second."""


class Lacks:
    """Reasons why settings are unsupported, each for a few seconds."""

    def __init__(self) -> None:
        self._known: dict[Owner, tuple[str, str, float]] = {}
        """Value that was asked for, the reason, and the monotonic second until which it holds: none after one look."""
        self._first: dict[Owner, float] = {}
        """Monotonic second of that one look; a step may look twice."""
        self._turn = 0

    def reason(self, setting: Setting, now: float) -> str:
        """Return why a setting is unsupported; empty where that has to be looked up."""
        value, reason, until = self._known.get((setting.target, setting.knob), ("", "", now))
        return reason if value == setting.value and now < until else ""

    def note(self, setting: Setting, reason: str, now: float) -> None:
        """Take note of what was looked up; of knobs of cgroups alone."""
        if KNOBS[setting.knob].scope is not Scope.CGROUP:
            return
        owner = (setting.target, setting.knob)
        value, known, until = self._known.get(owner, ("", "", -math.inf))
        if (value, known) != (setting.value, reason):
            until, self._first[owner] = -math.inf, now
        elif until == -math.inf and now <= self._first[owner]:
            return
        elif until == -math.inf:
            self._turn = self._turn % _MOST_SECONDS + 1
            until = now + self._turn
        elif until <= now:
            until += _MOST_SECONDS * ((now - until) // _MOST_SECONDS + 1)
        self._known[owner] = (setting.value, reason, until)

    def keep(self, targets: Collection[str]) -> None:
        """Forget all other cgroups."""
        self._known = {owner: lack for owner, lack in self._known.items() if owner[0] in targets}
        self._first = {owner: first for owner, first in self._first.items() if owner in self._known}
