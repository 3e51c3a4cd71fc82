"""Versioned objects: one counter of revisions, the latest state of each object, and a bounded history.

The analogue of etcd. Documents are never changed in place: each write stores a fresh one with its JSON,
so that lists, watches and snapshots share bytes. Pure of clocks and sockets; not locked.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from cluster.resources import Document, Key
from cluster.twin.kinds import ServedKind


class Record(NamedTuple):
    """One state of one object."""

    key: Key
    revision: int
    document: Document
    data: bytes


class DatabaseWrite(NamedTuple):
    """One write. `record` is the state written, for a deletion the last one with the deletion's revision."""

    revision: int
    type: str
    """ADDED, MODIFIED or DELETED."""
    record: Record
    previous: Record | None


@dataclass(slots=True)
class ObjectTable:
    """The objects of one kind."""

    kind: ServedKind
    records: dict[Key, Record] = field(default_factory=dict)
    history: deque[DatabaseWrite] = field(default_factory=deque)
    compacted: int = 0
    """Events up to this revision are forgotten."""

    def since(self, revision: int) -> list[DatabaseWrite]:
        """Events after `revision`, oldest first; the caller checks `compacted`."""
        late: list[DatabaseWrite] = []
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            late.append(event)
        late.reverse()
        return late

    def at(self, revision: int) -> dict[Key, Record]:
        """The objects as they were at `revision`, as far back as the history reaches."""
        past = dict(self.records)
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            if event.previous is None:
                past.pop(event.record.key, None)
            else:
                past[event.record.key] = event.previous
        return past

    def compact(self, revision: int) -> None:
        """Forget events up to `revision`."""
        while self.history and self.history[0].revision <= revision:
            self.history.popleft()
        self.compacted = max(self.compacted, revision)


Listener = Callable[[ObjectTable, DatabaseWrite], None]


class Database:
    """All tables. `listeners` are called for every write in order, before the writer gets its answer."""

    def __init__(self, kinds: list[ServedKind], history_length: int) -> None:
        self.revision = 1
        self.tables: dict[tuple[str, str, str], ObjectTable] = {}
        self.listeners: list[Listener] = []
        self._history_length = history_length
        for kind in kinds:
            self.serve(kind)

    def serve(self, kind: ServedKind) -> None:
        """Add a kind, or renew what is known of it; its objects stay."""
        place = (kind.group, kind.version, kind.plural)
        if place in self.tables:
            self.tables[place].kind = kind
        else:
            self.tables[place] = ObjectTable(kind, compacted=self.revision)

    def table(self, group: str, version: str, plural: str) -> ObjectTable | None:
        """The table of a kind, or None when it is not served."""
        return self.tables.get((group, version, plural))

    def put(self, table: ObjectTable, key: Key, document: Document) -> Record:
        """Store a document, which the caller hands over; sets its resourceVersion."""
        self.revision += 1
        document["metadata"]["resourceVersion"] = str(self.revision)
        record = Record(key, self.revision, document, msgspec.json.encode(document))
        previous = table.records.get(key)
        table.records[key] = record
        self._publish(table, DatabaseWrite(self.revision, "MODIFIED" if previous else "ADDED", record, previous))
        return record

    def remove(self, table: ObjectTable, key: Key) -> Record:
        """Delete an object; returns its last state under the deletion's revision."""
        previous = table.records.pop(key)
        self.revision += 1
        metadata = {**previous.document["metadata"], "resourceVersion": str(self.revision)}
        document = {**previous.document, "metadata": metadata}
        record = Record(key, self.revision, document, msgspec.json.encode(document))
        self._publish(table, DatabaseWrite(self.revision, "DELETED", record, previous))
        return record

    def compact(self) -> None:
        """Forget all history: every older resource version answers 410 from here on."""
        for table in self.tables.values():
            table.compact(self.revision)

    def _publish(self, table: ObjectTable, event: DatabaseWrite) -> None:
        table.history.append(event)
        if len(table.history) > self._history_length:
            table.compact(table.history[0].revision)
        for listener in self.listeners:
            listener(table, event)


def in_namespace(records: dict[Key, Record], namespace: str) -> Iterator[Record]:
    """The records of a namespace in key order; of all when it is empty."""
    for key in sorted(records):
        if not namespace or key.namespace == namespace:
            yield records[key]
