"""Injected faults of requests and watches, drawn by a seeded generator, so repeatable."""

from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from cluster.twin.status_errors import StatusError


class FaultType(StrEnum):
    """Type of a fault of a request or watch. `Fault.after` decides whether a write takes effect first."""

    ERROR = "error"
    """Answers `status` with a fitting reason, and Retry-After where `seconds` is set."""
    DROP = "drop"
    """Closes the connection without an answer."""
    DELAY = "delay"
    """Answers after `seconds`."""
    STALE = "stale"
    """A read answers with the state of `writes` writes ago."""
    STALL = "stall"
    """A watch stays open and sends nothing any more, bookmarks included, after `writes` events."""
    CLOSE = "close"
    """A watch's connection closes without an error after `writes` events."""


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and the requests that it applies to.

    `verbs` are get, list, watch, create, update, patch, delete, bind, evict; empty means all. `plural`
    narrows to one kind. `times` bounds how often it strikes; None is for ever.
    """

    type: FaultType
    verbs: frozenset[str] = frozenset()
    plural: str = ""
    probability: float = 1.0
    times: int | None = None
    after: bool = False
    status: int = 500
    seconds: float = 0.0
    writes: int = 0

    def error(self) -> StatusError:
        """The answer of an ERROR."""
        reason = _REASONS.get(self.status, "Unknown")
        retry_after = round(self.seconds) or None
        return StatusError(self.status, reason, "injected by the twin", retry_after_seconds=retry_after)


WATCH_FAULTS = frozenset({FaultType.STALL, FaultType.CLOSE})


@dataclass(slots=True)
class Faults:
    """The faults in force. `struck` counts the requests hit by each type."""

    random: Random
    struck: dict[FaultType, int] = field(default_factory=dict)
    _active: list[Fault] = field(default_factory=list)
    _left: dict[int, int] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        """Put a fault in force; the first one that fits a request and is drawn strikes it."""
        self._active.append(fault)
        if fault.times is not None:
            self._left[id(fault)] = fault.times

    def clear(self) -> None:
        """End all faults."""
        self._active.clear()
        self._left.clear()

    def strike(self, verb: str, plural: str) -> Fault | None:
        """Return the fault drawn for this request, if any."""
        for fault in self._active:
            if self._fits(fault, verb, plural) and self.random.random() < fault.probability:
                if fault.times is not None:
                    self._left[id(fault)] -= 1
                self.struck[fault.type] = self.struck.get(fault.type, 0) + 1
                return fault
        return None

    def _fits(self, fault: Fault, verb: str, plural: str) -> bool:
        if fault.type in WATCH_FAULTS and verb != "watch":
            return False
        if fault.type is FaultType.STALE and verb not in ("get", "list"):
            return False
        return (
            (not fault.verbs or verb in fault.verbs)
            and (not fault.plural or fault.plural == plural)
            and (fault.times is None or self._left.get(id(fault), 0) > 0)
        )
