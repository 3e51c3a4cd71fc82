"""PrioritySort: order of the queue: priority, then Koordinator's sub-priority, then time of arrival."""

from typing import Any

from api.protocol import LABEL_PRIORITY
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Plugin


def sub_priority(info: PodInfo) -> int:
    """The sub-priority label, 0 when missing or unreadable; orders pods of equal priority."""
    try:
        return int(info.labels.get(LABEL_PRIORITY, "0"), 0)
    except ValueError:
        return 0


class PrioritySort(Plugin[None]):
    """Sorts the active queue."""

    name = "PrioritySort"
    rank = 10

    def prepare(self, info: PodInfo) -> None:
        """Nothing to say about an attempt."""

    def sort_key(self, info: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Smallest first."""
        return (-info.priority, -sub_priority(info), queued_at)
