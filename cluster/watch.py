"""One watch: the server's stream of changes after a resource version, until it ends for any reason.

A watch is expected to end: the server closes it after `timeoutSeconds`, closes slow readers without a
word, or stops sending without closing. Silence is noticed, because with bookmarks a healthy watch sends
something about once a minute. A caller that needs continuity resumes from `resource_version` (see `Informer`).
"""

from collections.abc import Iterator
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from cluster import errors
from cluster.listing import Identity, Item, ItemDecoder, decode_deep
from cluster.resources import Query, Resource
from cluster.transport import Request, Transport

T = TypeVar("T")

SESSION_SECONDS = 360
"""Time after which the server ends a watch; bounds how long a lost one can go unnoticed."""


class ChangeType(StrEnum):
    """Type of a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class WatchEvent(NamedTuple):
    """One line of a watch; a deleted object comes in its last state."""

    type: ChangeType
    item: Item[Any]


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


_LINES = msgspec.json.Decoder(_Line)
_STATUSES = msgspec.json.Decoder(errors.Status)
_CHANGES = {member.value: member for member in ChangeType}


class Watch(Generic[T]):
    """An open watch. Iterate `batches` in one thread; `stop` it from any.

    `resource_version` is always where a following watch continues; bookmarks move it too.
    """

    def __init__(
        self,
        transport: Transport,
        resource: Resource[T],
        query: Query,
        resource_version: str,
        silence_seconds: float,
    ) -> None:
        self.resource_version = resource_version
        self.bookmarks = 0
        self._decoder = ItemDecoder(resource.model)
        self._where = f"watch of {resource.plural}"
        parameters = query.parameters() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(SESSION_SECONDS),
        }
        request = Request("GET", resource.path(query.namespace), parameters)
        self._stream = transport.stream(request, silence_seconds)

    def __enter__(self) -> "Watch[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def stop(self) -> None:
        """End the watch from another thread; its iteration stops."""
        self._stream.stop()

    def batches(self) -> Iterator[list[WatchEvent]]:
        """Changes as they arrive, those of one network read together; may be empty after a bookmark.

        Ends when the server ends the watch. Raises `Unavailable` on a broken or silent connection, `Expired`
        when the version is too old, `Undecodable` for a line that is no event.
        """
        for lines in self._stream.batches():
            yield [change for line in lines if line for change in self._read(line)]

    def _read(self, line: bytes) -> Iterator[WatchEvent]:
        try:
            event = decode_deep(_LINES, line)
            kind = _CHANGES.get(event.type)
            if kind is not None:
                item = self._decoder.decode(event.object)
                self._advance(item.identity)
                yield WatchEvent(kind, item)
            elif event.type == "BOOKMARK":
                self.bookmarks += 1
                self._advance(ItemDecoder(dict).decode(event.object).identity)
            elif event.type == "ERROR":
                raise errors.from_status(_STATUSES.decode(event.object), self._where)
        except msgspec.DecodeError as error:
            raise errors.Undecodable(f"{self._where}: {error}: {line[:200]!r}") from error

    def _advance(self, identity: Identity) -> None:
        if identity.resource_version:
            self.resource_version = identity.resource_version
