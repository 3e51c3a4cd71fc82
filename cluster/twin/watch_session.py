"""Server side of one watch: selection of its events, and their encoding."""

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.resources import Key
from cluster.twin.database import DatabaseWrite, ObjectTable
from cluster.twin.http_messages import chunk
from cluster.twin.selectors import Predicate
from cluster.twin.status_errors import StatusError, expired


@dataclass(slots=True)
class WatchSession:
    """An open watch, which the server ends after `lasts_seconds`."""

    table: ObjectTable
    namespace: str
    predicate: Predicate | None
    bookmarks: bool
    lasts_seconds: float

    def view(self, event: DatabaseWrite) -> str:
        """Return the event's type for this watch, "" when it is not selected.

        An object that comes to match a selector is added, one that ceases to is deleted.
        """
        if self.namespace and event.record.key.namespace != self.namespace:
            return ""
        if self.predicate is None:
            return event.type
        before = event.previous is not None and self.predicate(event.previous.document)
        if event.type == "DELETED":
            return "DELETED" if before else ""
        after = self.predicate(event.record.document)
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else ""

    def replay(self, revision: int) -> Iterator[bytes]:
        """Chunks of the events after `revision`; raises `StatusError` 410 when they are forgotten."""
        if revision < self.table.compacted:
            raise expired(f"too old resource version: {revision} ({self.table.compacted})")
        for event in self.table.since(revision):
            kind = self.view(event)
            if kind:
                yield event_chunk(kind, event.record.data)

    def present(self) -> Iterator[bytes]:
        """Chunks that add every object there is, for a watch without a resource version."""
        for key, record in self.table.records.items():
            if self._covers(key) and (self.predicate is None or self.predicate(record.document)):
                yield event_chunk("ADDED", record.data)

    def bookmark(self, revision: int) -> bytes:
        """Return the bookmark of this watch as a chunk."""
        kind = self.table.kind
        text = (
            f'{{"kind":"{kind.name}","apiVersion":"{kind.api_version}",'
            f'"metadata":{{"resourceVersion":"{revision}","creationTimestamp":null}}}}'
        )
        return event_chunk("BOOKMARK", text.encode())

    def _covers(self, key: Key) -> bool:
        return not self.namespace or key.namespace == self.namespace


def event_chunk(kind: str, data: bytes) -> bytes:
    """One watch event as a chunk of the response."""
    return chunk(b'{"type":"%s","object":%s}\n' % (kind.encode(), data))


def error_chunk(error: StatusError) -> bytes:
    """Return the ERROR event that ends an open watch."""
    return event_chunk("ERROR", error.body())
