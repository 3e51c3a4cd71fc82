"""PrioritySort: order of the queue: priority, then Koordinator's sub-priority, then time of arrival."""

from typing import Any

from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Plugin
from scheduler.priority import sub_priority


class PrioritySort(Plugin[None]):
    """Sorts the active queue."""

    name = "PrioritySort"
    rank = 10

    def prepare(self, info: PodInfo) -> None:
        """Nothing to say about an attempt."""

    def sort_key(self, info: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Smallest first."""
        return (-info.priority, -sub_priority(info.labels), queued_at)
