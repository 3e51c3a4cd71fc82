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

    `fits` says whether some pods have room once others are gone.
    """
    ordered = sorted(groups, key=lambda group: group.rank)
    for index, group in enumerate(ordered):
        given: list[HeldGroup] = []
        for younger in reversed(ordered[index + 1 :]):
            given.append(younger)
            if fits(group.missing, [info for each in given for info in each.held]):
                return group, given
    return None
