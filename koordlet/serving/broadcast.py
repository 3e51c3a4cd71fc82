"""Between the tick, which never waits, and the clients' threads, which do: bounded queues of verdicts.

A client that falls behind loses its queue, hears how many messages that were, and gets a new snapshot: what it
believes to stand is right again without asking.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from api.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class VerdictFilter:
    """Which verdicts a client wants; empty fields select all."""

    victim: str = ""
    """Shell pattern of cgroup paths."""
    resource: str = ""

    def admits(self, verdict: Verdict) -> bool:
        """Whether the verdict is among them."""
        by_path = not self.victim or fnmatchcase(verdict.victim, self.victim)
        return by_path and self.resource in ("", verdict.resource)


@dataclass(frozen=True, slots=True)
class Told:
    """One message to a client: a verdict, or (None) that the snapshot before it is complete."""

    verdict: Verdict | None
    dropped: int
    """Messages this client has lost so far."""


class VerdictHub:
    """Holds what stands and hands changes to every subscription."""

    def __init__(self, queue_size: int) -> None:
        self._queue_size = queue_size
        self._changed = threading.Condition()
        self._standing: tuple[Verdict, ...] = ()
        self._subscriptions: list[Subscription] = []
        self._closed = False
        self._dropped_of_gone = 0

    def publish(self, changes: Sequence[Verdict], standing: tuple[Verdict, ...]) -> None:
        """What one tick changed, and what stands after it. Never waits for a client."""
        with self._changed:
            self._standing = standing
            if not changes:
                return
            for subscription in self._subscriptions:
                subscription.push(changes)
            self._changed.notify_all()

    def standing(self, wanted: VerdictFilter) -> list[Verdict]:
        """The verdicts that stand, by victim and rule."""
        return [verdict for verdict in self._standing if wanted.admits(verdict)]

    def subscribe(self, wanted: VerdictFilter) -> "Subscription":
        """A new client, which first hears what stands. Leave it by `Subscription.close`."""
        with self._changed:
            subscription = Subscription(self, wanted, self._queue_size)
            self._subscriptions.append(subscription)
            return subscription

    def close(self) -> None:
        """End every subscription."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def clients(self) -> int:
        """Subscriptions that are open."""
        return len(self._subscriptions)

    @property
    def dropped(self) -> int:
        """Messages lost to clients that did not keep up, ever."""
        with self._changed:
            return self._dropped_of_gone + sum(each.dropped for each in self._subscriptions)

    def take(self, subscription: "Subscription", timeout_seconds: float | None) -> list[Told] | None:
        """Wait for messages; empty when the time is up, None when the subscription has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or subscription.ended or subscription.ready, timeout_seconds)
            if self._closed or subscription.ended:
                return None
            return subscription.pop(self._standing)

    def leave(self, subscription: "Subscription") -> None:
        """Forget a client and wake its thread."""
        with self._changed:
            subscription.ended = True
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                self._dropped_of_gone += subscription.dropped
            self._changed.notify_all()


class Subscription:
    """One client's queue. The hub's lock guards everything but `take` and `close`."""

    def __init__(self, hub: VerdictHub, wanted: VerdictFilter, queue_size: int) -> None:
        self.dropped = 0
        self.ended = False
        self._hub = hub
        self._wanted = wanted
        self._queue_size = queue_size
        self._pending: deque[Verdict] = deque()
        self._snapshot_due = True
        self._behind = False

    @property
    def ready(self) -> bool:
        """Whether there is something to take."""
        return self._snapshot_due or bool(self._pending)

    def push(self, changes: Iterable[Verdict]) -> None:
        """Queue what the client wants; with no room left, drop it all and owe a snapshot."""
        wanted = [verdict for verdict in changes if self._wanted.admits(verdict)]
        if self._snapshot_due:
            # The first snapshot will tell of these; a client that fell behind has lost how it came to be.
            self.dropped += len(wanted) if self._behind else 0
        elif len(self._pending) + len(wanted) > self._queue_size:
            self.dropped += len(self._pending) + len(wanted)
            self._pending.clear()
            self._snapshot_due = self._behind = True
        else:
            self._pending.extend(wanted)

    def pop(self, standing: Iterable[Verdict]) -> list[Told]:
        """Everything there is to tell."""
        if not self._snapshot_due:
            told = [Told(verdict, self.dropped) for verdict in self._pending]
            self._pending.clear()
            return told
        self._snapshot_due = self._behind = False
        stands = [Told(verdict, self.dropped) for verdict in standing if self._wanted.admits(verdict)]
        return [*stands, Told(None, self.dropped)]

    def take(self, timeout_seconds: float | None = None) -> list[Told] | None:
        """See `VerdictHub.take`."""
        return self._hub.take(self, timeout_seconds)

    def close(self) -> None:
        """Leave; a `take` that waits returns None."""
        self._hub.leave(self)
