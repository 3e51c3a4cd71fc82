"""Writes that failed and are made again: with growing waits, until they succeed, are replaced or lose their object."""

from dataclasses import dataclass
from typing import TypeAlias

from scheduler.framework import Verb, Write

FIRST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 60.0
MAX_UNMADE = 20_000
"""Failed writes kept; beyond this the oldest is let go."""

Target: TypeAlias = tuple[Verb, str, str, str]
"""Verb, plural, namespace and name: a later write to the same target replaces an earlier one."""


@dataclass(slots=True)
class UnmadeWrite:
    """A write to make again at `due_seconds`."""

    write: Write
    due_seconds: float
    wait_seconds: float
    sent: bool = False
    """It is under way again; a failure is its next one."""


class UnmadeWrites:
    """Failed writes by target."""

    def __init__(self) -> None:
        self._writes: dict[Target, UnmadeWrite] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def failed(self, write: Write, now: float) -> None:
        """Keep a failed write, unless a later one to the same target is known."""
        known = self._writes.get(target(write))
        if known is not None and known.write is not write:
            return
        wait = min(LONGEST_WAIT_SECONDS, 2 * known.wait_seconds) if known is not None else FIRST_WAIT_SECONDS
        if known is None and len(self._writes) >= MAX_UNMADE:
            del self._writes[next(iter(self._writes))]
        self._writes[target(write)] = UnmadeWrite(write, now + wait, wait)

    def replaced(self, write: Write) -> None:
        """A write to the same target is about to be made: the failed one has no say any more."""
        known = self._writes.get(target(write))
        if known is not None and known.write is not write:
            del self._writes[target(write)]

    def due(self, now: float) -> list[Write]:
        """Writes to make again; those that were and did not come back have succeeded."""
        for key in [key for key, unmade in self._writes.items() if unmade.sent and unmade.due_seconds <= now]:
            del self._writes[key]
        ready = [unmade for unmade in self._writes.values() if not unmade.sent and unmade.due_seconds <= now]
        for unmade in ready:
            # An answer takes seconds at most; until it is in, nothing else is sent.
            unmade.sent, unmade.due_seconds = True, now + LONGEST_WAIT_SECONDS
        return [unmade.write for unmade in ready]

    def clear(self) -> None:
        """Let go of everything: another process leads."""
        self._writes.clear()


def target(write: Write) -> Target:
    """What a write changes."""
    return write.verb, write.resource.plural, write.key.namespace, write.key.name
