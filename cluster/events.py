"""Kubernetes Events without flooding: repeated ones become a series, chatty objects are held back.

`correlate` is the pure part: given what was sent before, it says whether an event is sent afresh, counted
onto an existing one, or held back. `EventRecorder` does the writing in one background thread, so that callers
never wait; a full queue drops events and counts them.
"""

import logging
import queue
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random

import msgspec

from api.kube.meta import ObjectReference
from cluster import errors
from cluster.client import Client
from cluster.rate_limit import TokenBucket
from cluster.resources import EVENTS, Document, Key, merge_patch

log = logging.getLogger(__name__)

NOTE_BYTES = 1024
"""The API server refuses a longer note."""
SWEEP_AT = 128


@dataclass(frozen=True, slots=True)
class Event:
    """An event on `regarding`: a CamelCase `reason`, the `action` tried, and a sentence for users."""

    regarding: ObjectReference
    reason: str
    note: str
    action: str
    type: str = "Normal"
    """Normal or Warning."""
    related: ObjectReference | None = None


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """Rates of the recorder, and the component it reports as."""

    controller: str
    """Reporting controller, e.g. koord-scheduler."""
    instance: str
    """Reporting instance, e.g. the pod's name."""
    series_seconds: float = 360.0
    """An equal event within this time after the last one continues its series."""
    burst_per_object: int = 25
    """Distinct events about one object before its rate limit bites."""
    seconds_per_event: float = 300.0
    """Sustained distance of distinct events about one object."""
    queue_size: int = 1000
    remembered: int = 4096
    """Series and objects remembered, least recent forgotten first."""


@dataclass(frozen=True, slots=True)
class Series:
    """A sent event and how often it happened; `updated_seconds` is monotonic."""

    key: Key
    count: int
    updated_seconds: float


@dataclass(slots=True)
class RecorderCounters:
    """Counters of recorded events: sent, counted onto a series, dropped."""

    created: int = 0
    continued: int = 0
    held_back: int = 0
    dropped: int = 0
    failed: int = 0


@dataclass(slots=True)
class EventSeries:
    """Events sent lately: series by event, and a token bucket by object."""

    series: OrderedDict[Event, Series] = field(default_factory=OrderedDict)
    """The one continued last is the last."""
    buckets: OrderedDict[ObjectReference, TokenBucket] = field(default_factory=OrderedDict)
    sweep_at: int = SWEEP_AT
    """Number of buckets from which full ones are looked for."""


def correlate(memory: EventSeries, event: Event, settings: RecorderSettings, now_seconds: float) -> Series | None:
    """The running series that this event continues, or None when it has none; forgets old ones."""
    while memory.series:
        oldest = next(iter(memory.series.values()))
        if now_seconds - oldest.updated_seconds <= settings.series_seconds:
            break
        memory.series.popitem(last=False)
    return memory.series.get(_alike(event))


def admitted(memory: EventSeries, event: Event, settings: RecorderSettings, now_seconds: float) -> bool:
    """Return whether the object's rate limit lets one more distinct event through."""
    regarding = _alike(event).regarding
    bucket = memory.buckets.get(regarding)
    if bucket is None:
        if len(memory.buckets) >= memory.sweep_at:
            spent = ((key, each) for key, each in memory.buckets.items() if not each.full(now_seconds))
            memory.buckets = OrderedDict(spent)
            memory.sweep_at = max(SWEEP_AT, 2 * len(memory.buckets))
        bucket = TokenBucket(1.0 / settings.seconds_per_event, settings.burst_per_object)
        memory.buckets[regarding] = bucket
    memory.buckets.move_to_end(regarding)
    while len(memory.buckets) > settings.remembered:
        memory.buckets.popitem(last=False)
    return bucket.try_take(now_seconds)


def remember(memory: EventSeries, event: Event, series: Series, settings: RecorderSettings) -> None:
    """Note that `series` is where this event goes on."""
    kind = _alike(event)
    memory.series[kind] = series
    memory.series.move_to_end(kind)
    while len(memory.series) > settings.remembered:
        memory.series.popitem(last=False)


def _alike(event: Event) -> Event:
    """Return the event without what changes of an object whenever it is written."""
    related = event.related and msgspec.structs.replace(event.related, resource_version="")
    return replace(event, regarding=msgspec.structs.replace(event.regarding, resource_version=""), related=related)


class EventRecorder:
    """Sends events in the background. `stop` sends what is queued, within its timeout."""

    def __init__(self, client: Client, settings: RecorderSettings, *, random: Random | None = None) -> None:
        self.counters = RecorderCounters()
        self._client = client
        self._settings = settings
        self._random = random or Random()
        self._memory = EventSeries()
        self._queue: queue.Queue[Event | None] = queue.Queue(settings.queue_size)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Send what is queued, as far as the timeout allows."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put(None, timeout=timeout_seconds)
        except queue.Full:
            return
        self._thread.join(timeout_seconds)

    def record(self, event: Event) -> None:
        """Queue an event; never blocks, never raises. A note over the API's limit is cut."""
        try:
            self._queue.put_nowait(replace(event, note=cut(event.note)))
        except queue.Full:
            self.counters.dropped += 1

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._send(event, time.monotonic())
            except errors.Withheld:
                # Another process leads; it records what it does.
                self.counters.dropped += 1
            except errors.ClusterError as error:
                # Events are hints to users; retrying beyond the client's own retries would only queue more.
                self.counters.failed += 1
                log.info("event %s about %s lost: %s", event.reason, event.regarding.name, error)
            except Exception:
                # One odd event must not silence all later ones.
                self.counters.failed += 1
                log.exception("event %s about %s lost", event.reason, event.regarding.name)

    def _send(self, event: Event, now_seconds: float) -> None:
        series = correlate(self._memory, event, self._settings, now_seconds)
        if series is not None:
            self._continue(event, series, now_seconds)
        elif admitted(self._memory, event, self._settings, now_seconds):
            self._create(event, now_seconds)
        else:
            self.counters.held_back += 1

    def _create(self, event: Event, now_seconds: float) -> None:
        body = self._document(event, _stamp())
        self._client.create(EVENTS, body)
        key = Key(body["metadata"]["namespace"], body["metadata"]["name"])
        remember(self._memory, event, Series(key, 1, now_seconds), self._settings)
        self.counters.created += 1

    def _continue(self, event: Event, series: Series, now_seconds: float) -> None:
        longer = Series(series.key, series.count + 1, now_seconds)
        body = {"series": {"count": longer.count, "lastObservedTime": _stamp()}}
        try:
            self._client.patch(EVENTS, series.key, merge_patch(body))
        except errors.NotFound:
            # Events expire on the server after an hour or so; begin anew.
            self._create(event, now_seconds)
            return
        remember(self._memory, event, longer, self._settings)
        self.counters.continued += 1

    def _document(self, event: Event, stamp: str) -> Document:
        regarding = event.regarding
        # Cluster-scoped objects have their events in the default namespace.
        namespace = regarding.namespace or "default"
        # As kubectl's own events are named: the object's name keeps them findable, the number keeps them apart.
        name = f"{regarding.name[:200]}.{self._random.getrandbits(64):016x}"
        body: Document = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": stamp,
            "reportingController": self._settings.controller,
            "reportingInstance": self._settings.instance[:128],
            "action": event.action[:128],
            "reason": event.reason[:128],
            "note": event.note,
            "type": event.type,
            "regarding": _reference(regarding),
        }
        if event.related is not None:
            body["related"] = _reference(event.related)
        return body


def cut(note: str) -> str:
    """A note within the API's limit, without breaking a character."""
    data = note.encode()
    if len(data) <= NOTE_BYTES:
        return note
    return data[: NOTE_BYTES - 3].decode("utf-8", "ignore") + "..."


def _reference(reference: ObjectReference) -> Document:
    pairs = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
        "resourceVersion": reference.resource_version,
        "fieldPath": reference.field_path,
    }
    return {name: value for name, value in pairs.items() if value}


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
