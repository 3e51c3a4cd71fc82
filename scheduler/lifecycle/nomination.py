"""Nominated pods: those with room promised on a node once their victims are gone."""

from collections.abc import Iterable

from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo


class Nominator:
    """Nominated pods by row."""

    def __init__(self) -> None:
        self._rows: dict[Row, dict[str, PodInfo]] = {}
        self._row_of: dict[str, Row] = {}
        self._victims: dict[str, frozenset[str]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._row_of

    def add(self, info: PodInfo, row: Row, victims: frozenset[str] = frozenset()) -> None:
        """Promise the row to the pod, instead of any row before; `victims` are the pods that leave for it, by UID."""
        self.remove(info.uid)
        if victims:
            self._victims[info.uid] = victims
        self._rows.setdefault(row, {})[info.uid] = info
        self._row_of[info.uid] = row

    def remove(self, uid: str) -> None:
        """The pod waits for no row any more."""
        self._victims.pop(uid, None)
        row = self._row_of.pop(uid, None)
        if row is not None:
            waiting = self._rows[row]
            del waiting[uid]
            if not waiting:
                del self._rows[row]

    def clear_row(self, row: Row) -> None:
        """The row's node is gone."""
        for uid in list(self._rows.get(row, ())):
            self.remove(uid)

    def row(self, uid: str) -> Row | None:
        """The row promised to a pod."""
        return self._row_of.get(uid)

    def victims(self, uid: str) -> frozenset[str]:
        """The pods that leave for a pod, by UID; empty where it is not known."""
        return self._victims.get(uid, frozenset())

    def rows(self) -> Iterable[Row]:
        """Rows that are promised to some pod."""
        return tuple(self._rows)

    def on(self, row: Row) -> Iterable[PodInfo]:
        """The pods that a row is promised to."""
        return tuple(self._rows.get(row, {}).values())
