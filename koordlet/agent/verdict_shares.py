"""Shares of owners in the list of verdicts. Pure: verdicts and cgroups in, verdicts out.

Below the first directory that belongs to another user its owner can make as many victims as it likes, each with a
verdict for every rule. So few of them are told at once; the others wait until one of these closes.
"""

from collections.abc import Iterable

import msgspec

from api.frame import CgroupInfo
from api.tree_classes import TreeClasses
from api.verdicts import Verdict, VerdictState

MOST_OF_AN_OWNER = 8
"""Open verdicts of the first directory of another user and all below it."""
_Key = tuple[str, str, str]


class VerdictShares:
    """Verdicts that are told, from frame to frame."""

    def __init__(self, most: int = MOST_OF_AN_OWNER) -> None:
        self._most = most
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._classes = TreeClasses()
        self._told: dict[str, set[_Key]] = {}
        """Open verdicts by the boundary that their victim lies within."""
        self._withheld: dict[_Key, str] = {}
        """Open verdicts beyond the share of a boundary."""
        self.withheld = 0
        """Verdicts that were not told when they opened, since the start."""

    def admit(self, cgroups: tuple[CgroupInfo, ...], verdicts: Iterable[Verdict]) -> list[Verdict]:
        """Return what is told of verdicts that opened, changed or closed, in their order.

        One that was withheld opens when it may.
        """
        if cgroups is not self._cgroups:
            self._cgroups = cgroups
            self._classes = TreeClasses({info.path: info for info in cgroups})
        told: dict[int, Verdict] = {}
        # What closes makes room, and so comes first here.
        for place, verdict in sorted(enumerate(verdicts), key=lambda one: one[1].state is not VerdictState.CLOSE):
            key = _key(verdict)
            if verdict.state is VerdictState.CLOSE:
                for keys in self._told.values():
                    keys.discard(key)
                if self._withheld.pop(key, None) is None:
                    told[place] = verdict
                continue
            boundary = self._boundary_of(verdict.victim)
            if boundary and self._is_beyond(boundary, key):
                self.withheld += key not in self._withheld
                self._withheld[key] = boundary
                continue
            if boundary:
                self._told.setdefault(boundary, set()).add(key)
            if self._withheld.pop(key, None) is not None:
                told[place] = msgspec.structs.replace(verdict, state=VerdictState.OPEN)
            else:
                told[place] = verdict
        self._told = {boundary: keys for boundary, keys in self._told.items() if keys}
        return [told[place] for place in sorted(told)]

    def without_withheld(self, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
        """Return those of the open verdicts that are told."""
        return tuple(one for one in verdicts if _key(one) not in self._withheld) if self._withheld else verdicts

    def _boundary_of(self, victim: str) -> str:
        """First directory of another user on the way to a victim; empty where there is none."""
        boundary = self._classes.boundary_of(victim)
        return boundary if boundary != victim or self._classes.is_foreign(victim) else ""

    def _is_beyond(self, boundary: str, key: _Key) -> bool:
        told = self._told.get(boundary, ())
        return key not in told and len(told) >= self._most


def _key(verdict: Verdict) -> _Key:
    return verdict.victim, verdict.rule, verdict.resource
