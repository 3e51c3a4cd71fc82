"""Broadcast of verdicts from the tick, which never waits, to the clients' threads, which do: bounded queues.

A client that falls behind loses its queue, is told how many messages that were, and gets a new snapshot, so that its
set of open verdicts is right again without asking.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from api.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class VerdictFilter:
    """Filter of verdicts; empty fields select all."""

    victim: str = ""
    """Shell pattern of cgroup paths."""
    resource: str = ""

    def admits(self, verdict: Verdict) -> bool:
        """Return whether the filter selects the verdict."""
        by_path = not self.victim or fnmatchcase(verdict.victim, self.victim)
        return by_path and self.resource in ("", verdict.resource)


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message to a client: a verdict, or (None) that the snapshot before it is complete."""

    verdict: Verdict | None
    dropped: int
    """Messages that this client has lost so far."""


class VerdictBroadcast:
    """Broadcast of open verdicts and their changes to every subscription."""

    def __init__(self, queue_size: int) -> None:
        self._queue_size = queue_size
        self._changed = threading.Condition()
        self._open_verdicts: tuple[Verdict, ...] = ()
        self._subscriptions: list[Subscription] = []
        self._closed = False
        self._dropped_of_gone = 0

    def publish(self, changes: Sequence[Verdict], open_verdicts: tuple[Verdict, ...]) -> None:
        """Publish one tick's changes and the verdicts open after it. Never waits for a client."""
        with self._changed:
            self._open_verdicts = open_verdicts
            if not changes:
                return
            for subscription in self._subscriptions:
                subscription.push(changes)
            self._changed.notify_all()

    def open_verdicts(self, verdict_filter: VerdictFilter) -> list[Verdict]:
        """Return the open verdicts, by victim and rule."""
        return [verdict for verdict in self._open_verdicts if verdict_filter.admits(verdict)]

    def subscribe(self, verdict_filter: VerdictFilter) -> "Subscription":
        """Add a client, which first gets a snapshot. End it by `Subscription.close`."""
        with self._changed:
            subscription = Subscription(self, verdict_filter, self._queue_size)
            self._subscriptions.append(subscription)
            return subscription

    def close(self) -> None:
        """End every subscription."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def clients(self) -> int:
        """Number of open subscriptions."""
        return len(self._subscriptions)

    @property
    def dropped(self) -> int:
        """Messages lost since the start to clients that fell behind."""
        with self._changed:
            return self._dropped_of_gone + sum(each.dropped for each in self._subscriptions)

    def take(self, subscription: "Subscription", timeout_seconds: float | None) -> list[StreamMessage] | None:
        """Wait for messages; returns none when the time is up, and None when the subscription has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or subscription.ended or subscription.ready, timeout_seconds)
            if self._closed or subscription.ended:
                return None
            return subscription.pop(self._open_verdicts)

    def leave(self, subscription: "Subscription") -> None:
        """Remove a client and wake its thread."""
        with self._changed:
            subscription.ended = True
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                self._dropped_of_gone += subscription.dropped
            self._changed.notify_all()


class Subscription:
    """Queue of one client. The broadcast's lock guards everything but `take` and `close`."""

    def __init__(self, broadcast: VerdictBroadcast, verdict_filter: VerdictFilter, queue_size: int) -> None:
        self.dropped = 0
        self.ended = False
        self._broadcast = broadcast
        self._filter = verdict_filter
        self._queue_size = queue_size
        self._pending: deque[Verdict] = deque()
        self._snapshot_due = True
        self._behind = False

    @property
    def ready(self) -> bool:
        """Return whether there are messages to take."""
        return self._snapshot_due or bool(self._pending)

    def push(self, changes: Iterable[Verdict]) -> None:
        """Queue the messages for this client; without room, drop all of them and schedule a snapshot."""
        selected = [verdict for verdict in changes if self._filter.admits(verdict)]
        if self._snapshot_due:
            # The first snapshot includes these; a client that fell behind has lost the changes that led to it.
            self.dropped += len(selected) if self._behind else 0
        elif len(self._pending) + len(selected) > self._queue_size:
            self.dropped += len(self._pending) + len(selected)
            self._pending.clear()
            self._snapshot_due = self._behind = True
        else:
            self._pending.extend(selected)

    def pop(self, open_verdicts: Iterable[Verdict]) -> list[StreamMessage]:
        """Return all pending messages."""
        if not self._snapshot_due:
            message = [StreamMessage(verdict, self.dropped) for verdict in self._pending]
            self._pending.clear()
            return message
        self._snapshot_due = self._behind = False
        snapshot = [StreamMessage(verdict, self.dropped) for verdict in open_verdicts if self._filter.admits(verdict)]
        return [*snapshot, StreamMessage(None, self.dropped)]

    def take(self, timeout_seconds: float | None = None) -> list[StreamMessage] | None:
        """See `VerdictBroadcast.take`."""
        return self._broadcast.take(self, timeout_seconds)

    def close(self) -> None:
        """End the subscription; a waiting `take` returns None."""
        self._broadcast.leave(self)
