"""Time that pods lost to one cause, between two reports. Pure."""

from collections.abc import Mapping


class LostTime:
    """Sums by uid. A pod is stated from its first loss on for as long as it runs, so that its mean may fall again."""

    def __init__(self) -> None:
        self._lost: dict[str, float] = {}
        self._seconds = 0.0

    def add(self, lost_seconds: Mapping[str, float] | None, seconds: float) -> None:
        """Add what pods lost in a tick of some seconds, and forget those that are gone; a tick in which it was not
        measured (None) counts for nothing."""
        if lost_seconds is None:
            return
        self._seconds += seconds
        self._lost = {
            uid: self._lost.get(uid, 0.0) + lost for uid, lost in lost_seconds.items() if lost > 0 or uid in self._lost
        }

    def take(self) -> dict[str, float]:
        """Return seconds lost a second since the last call, and begin anew."""
        if self._seconds <= 0:
            return {}
        taken = {uid: lost / self._seconds for uid, lost in self._lost.items()}
        self._lost = dict.fromkeys(self._lost, 0.0)
        self._seconds = 0.0
        return taken
