"""Gangs of the mode NonStrict that hold each other's room: none is whole, and none lets go before its time is over.

Decides from values alone; whether pods fit is asked of the caller.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.cluster_state.podinfo import PodInfo


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A group that is not whole: members that hold a place, and those that it still needs."""

    id: str
    held: tuple[PodInfo, ...]
    missing: tuple[PodInfo, ...]

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key: the most important first, of equals the oldest."""
        pods = (*self.held, *self.missing)
        created = min(info.pod.metadata.creation_timestamp or "9999" for info in pods)
        return -max(info.priority for info in pods), created, self.id


def give_back(
    groups: Iterable[HeldGroup], fits: Callable[[Sequence[PodInfo], Sequence[PodInfo]], bool]
) -> tuple[HeldGroup, list[HeldGroup]] | None:
    """The first group that would be whole without the places of younger ones, and these, as few as do; None without.

    `fits` says whether some pods have room once others are gone. It is asked once about a group that nothing helps.
    A group whose pods have room as it is needs nothing: they are tried in their turn.
    """
    ordered = sorted(groups, key=lambda group: group.rank)
    for index, group in enumerate(ordered[:-1]):
        given = ordered[index + 1 :]
        if not fits(group.missing, _held(given)) or fits(group.missing, ()):
            continue
        for each in tuple(given):
            rest = [other for other in given if other is not each]
            if rest and fits(group.missing, _held(rest)):
                given = rest
        return group, given
    return None


def _held(groups: Iterable[HeldGroup]) -> list[PodInfo]:
    return [info for group in groups for info in group.held]
