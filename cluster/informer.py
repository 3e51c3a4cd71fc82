"""Informer: a local copy of one kind that is kept up to date, with changes for subscribers.

One thread lists, then watches; resumes where a watch ended, and lists again when the server no longer
knows the version. Subscribers get every change exactly once and in order, in batches, and after a list
also the deletions that no watch event announced.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from cluster import errors
from cluster.client import Client
from cluster.listing import Listing
from cluster.rate_limit import Backoff
from cluster.resources import EVERYTHING, Key, Query, Resource
from cluster.store import DeltaType, Store, StoreDelta, newer_version
from cluster.watch import Watch

log = logging.getLogger(__name__)

T = TypeVar("T")

Subscriber = Callable[[Sequence[StoreDelta[T]]], None]


@dataclass(frozen=True, slots=True)
class InformerSettings:
    """Timeouts and retries of an informer."""

    silence_seconds: float = 90.0
    """A watch that is silent for this time is given up and resumed. Servers send bookmarks each minute."""
    backoff: Backoff = field(default_factory=lambda: Backoff(initial_seconds=0.2, maximum_seconds=30.0))
    resumes_before_list: int = 5
    """Failed resumes in a row after which the state is listed afresh."""
    stale_lists: int = 3
    """Lists older than what was seen that are refused in a row. More than that is a restored backup."""


@dataclass(slots=True)
class InformerCounters:
    """Counters of an informer; read by metrics and tests."""

    lists: int = 0
    watches: int = 0
    failures: int = 0
    stale_lists: int = 0
    subscriber_errors: int = 0
    last_heard_seconds: float = 0.0
    """Monotonic time of the last list, change or bookmark."""


class Informer(Generic[T]):
    """Keeps a copy of what `query` selects of `resource`. Start it once; stop it to end its thread.

    A kind that the server does not serve (its definition is not installed) counts as synced and empty, with
    `served` False, and is asked for again with back-off.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        query: Query = EVERYTHING,
        *,
        settings: InformerSettings | None = None,
        random: Random | None = None,
    ) -> None:
        self.resource = resource
        self.served = True
        self.problem: errors.ClusterError | None = None
        """Why the last list or watch failed; None when it did not."""
        self.counters = InformerCounters()
        self._client = client
        self._query = query
        self._settings = settings or InformerSettings()
        self._random = random or Random()
        self._store: Store[T] = Store()
        self._subscribers: list[Subscriber[T]] = []
        # Held while the store changes and subscribers are called, so that both are one step to other threads.
        self._lock = threading.RLock()
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        """Ends the present wait after a failure."""
        self._watch: Watch[T] | None = None
        self._seen_version = ""
        self._trouble: type[errors.ClusterError] | None = None
        self._thread = threading.Thread(target=self._run, name=f"informer-{resource.plural}", daemon=True)

    def __enter__(self) -> "Informer[T]":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Call the subscriber with every change from here on, starting with the present objects as added.

        Called in the informer's thread (the first time in the caller's); must not block for long. What it
        raises is logged and counted, and the informer goes on.
        """
        with self._lock:
            self._subscribers.append(subscriber)
            present = [
                StoreDelta(DeltaType.ADDED, key, None, entry.value) for key, entry in self._store.entries().items()
            ]
            self._notify([subscriber], present)

    def start(self) -> None:
        """Begin listing and watching."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End the thread; the copy stays readable."""
        self._stopping.set()
        self._hurry.set()
        watch = self._watch
        if watch is not None:
            watch.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def hurry(self) -> None:
        """End the wait after a failure: the server is known to answer again."""
        self._hurry.set()

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait until the first list is in and delivered to subscribers; False when that takes longer.

        Also True once the server said that it does not serve the kind.
        """
        return self._synced.wait(timeout_seconds)

    def get(self, key: Key) -> T | None:
        """Return the object as last seen, or None."""
        with self._lock:
            entry = self._store.entry(key)
        return None if entry is None else entry.value

    def snapshot(self) -> dict[Key, T]:
        """Return all objects as last seen, one consistent moment of the copy."""
        with self._lock:
            return {key: entry.value for key, entry in self._store.entries().items()}

    def versions(self) -> dict[Key, str]:
        """Resource version of every object as last seen."""
        with self._lock:
            entries = self._store.entries().items()
            return {key: entry.identity.resource_version for key, entry in entries}

    @property
    def undecodable(self) -> int:
        """Number of objects that did not decode to the resource's type and were passed over."""
        return self._store.undecodable

    def silent_seconds(self) -> float:
        """Seconds since the server last sent anything; large means that the copy may be old."""
        return time.monotonic() - self.counters.last_heard_seconds

    def _run(self) -> None:
        failures = 0
        version = ""
        while not self._stopping.is_set():
            before = self.counters.last_heard_seconds
            try:
                version = version or self._list()
                version = self._follow(version)
                quiet = self.counters.last_heard_seconds == before
                failures = failures + 1 if quiet else 0
            except (errors.Expired, errors.Undecodable) as error:
                log.info("listing %s again: %s", self.resource.plural, error)
                version = ""
                failures += 1
            except errors.ClusterError as error:
                failures, version = self._after_failure(error, failures, version, before)
            except Exception:
                # A copy that silently stops being kept is worse than any error: begin anew.
                log.exception("watch of %s", self.resource.plural)
                failures, version = failures + 1, ""
            if failures:
                self._hurry.wait(self._settings.backoff.delay_seconds(failures - 1, self._random))
            self._hurry.clear()

    def _after_failure(self, error: errors.ClusterError, failures: int, version: str, before: float) -> tuple[int, str]:
        self.counters.failures += 1
        self.problem = error
        heard = self.counters.last_heard_seconds != before
        failures = 1 if heard else failures + 1
        if isinstance(error, errors.NotFound) and not self.served:
            self._tell(error, logging.INFO, "%s is not served by this cluster; asking again with back-off")
        elif not self._stopping.is_set():
            self._tell(error, logging.WARNING, "watch of %s interrupted, trying again: %s", error)
        # Events received before the failure count: resume behind it, not where the watch began.
        version = self._seen_version if version else ""
        return failures, "" if failures > self._settings.resumes_before_list else version

    def _list(self) -> str:
        try:
            listing = self._fresh_listing()
        except errors.NotFound:
            # Only a kind that is not served has no list. What was seen while it was stays.
            self.served = False
            self._synced.set()
            raise
        self.served = True
        self.problem = None
        self.counters.lists += 1
        with self._lock:
            deltas = self._store.replace(listing.items)
            self._seen_version = listing.resource_version
            self._note_activity()
            self._notify(self._subscribers, deltas)
        self._synced.set()
        return listing.resource_version

    def _fresh_listing(self) -> Listing[T]:
        listing = self._client.list(self.resource, self._query)
        for _ in range(self._settings.stale_lists):
            # A server behind the one asked before would take the copy back in time.
            if not newer_version(self._seen_version, listing.resource_version):
                break
            self.counters.stale_lists += 1
            listing = self._client.list(self.resource, self._query, not_older_than=self._seen_version)
        return listing

    def _follow(self, version: str) -> str:
        self.counters.watches += 1
        with self._client.watch(
            self.resource,
            self._query,
            resource_version=version,
            silence_seconds=self._settings.silence_seconds,
        ) as watch:
            self._watch = watch
            if self._stopping.is_set():
                return version
            for changes in watch.batches():
                with self._lock:
                    deltas = self._store.apply(changes)
                    self._seen_version = watch.resource_version
                    self._note_activity()
                    self._notify(self._subscribers, deltas)
            return watch.resource_version

    def _tell(self, error: errors.ClusterError, level: int, text: str, *rest: object) -> None:
        """Log a failure once until it ends or becomes another: an outage is many failures in many informers."""
        log.log(level if type(error) is not self._trouble else logging.DEBUG, text, self.resource.plural, *rest)
        self._trouble = type(error)

    def _note_activity(self) -> None:
        self.counters.last_heard_seconds = time.monotonic()
        if self._trouble is not None:
            self._trouble = None
            log.info("watch of %s goes on after %d failures", self.resource.plural, self.counters.failures)

    def _notify(self, subscribers: Sequence[Subscriber[T]], deltas: Sequence[StoreDelta[T]]) -> None:
        if not deltas:
            return
        for subscriber in subscribers:
            try:
                subscriber(deltas)
            except Exception:
                # A subscriber's fault must not end the copy that others read.
                self.counters.subscriber_errors += 1
                log.exception("subscriber of %s failed on %d changes", self.resource.plural, len(deltas))
