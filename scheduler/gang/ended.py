"""Finished pods of gangs, which hold nothing any more and still count in a PodGroup's status."""

from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """End of one pod: succeeded or failed, and bound before or not."""

    uid: str
    succeeded: bool
    """False: it failed."""
    bound: bool
    """It had a node; a pod can fail before it gets one."""


class EndedMembers:
    """Ends by gang and pod key. Holds no more than the finished pods that exist: a deleted pod is forgotten."""

    def __init__(self) -> None:
        self._ends: defaultdict[str, dict[str, End]] = defaultdict(dict)
        self._gang_of: dict[str, str] = {}

    def add(self, gang_id: str, pod: str, end: End) -> None:
        """Count a pod that has finished, once however often it is reported."""
        self.forget(pod)
        self._gang_of[pod] = gang_id
        self._ends[gang_id][pod] = end

    def forget(self, pod: str, uid: str | None = None) -> None:
        """The pod is gone or another lives under its name; with `uid`, only if that very pod is held."""
        gang_id = self._gang_of.get(pod)
        if gang_id is None or uid not in (None, self._ends[gang_id][pod].uid):
            return
        del self._gang_of[pod], self._ends[gang_id][pod]
        if not self._ends[gang_id]:
            del self._ends[gang_id]

    def withdraw(self, gang_id: str) -> None:
        """Forget a gang that is gone."""
        for pod in self._ends.pop(gang_id, {}):
            del self._gang_of[pod]

    def of(self, gang_id: str) -> tuple[End, ...]:
        """The ends of a gang's pods."""
        return tuple(self._ends.get(gang_id, {}).values())
