"""Lists in chunks: one consistent state, read page by page and decoded item by item."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from cluster import errors
from cluster.resources import Key, Query, Resource
from cluster.transport import Request

T = TypeVar("T")


class Identity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The part of metadata that identifies an object and its version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        """The key of the object within its kind."""
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """An object with its identity; `value` is None when it does not decode to the type asked for."""

    identity: Identity
    value: T | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Result of a list; `resource_version` is where a watch continues."""

    items: tuple[Item[T], ...]
    resource_version: str

    @property
    def values(self) -> list[T]:
        """The decoded objects, those that do not decode left out."""
        return [item.value for item in self.items if item.value is not None]


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    metadata: Identity = Identity()


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class ItemDecoder(Generic[T]):
    """Decodes objects of one type together with their identity. Not shared between threads."""

    def __init__(self, model: type[T]) -> None:
        self._model: msgspec.json.Decoder[Any] = msgspec.json.Decoder(model)
        self._envelope = msgspec.json.Decoder(_Envelope)

    def decode(self, raw: bytes | msgspec.Raw) -> Item[T]:
        """An object that does not fit the model is still an item, with the problem named.

        One malformed object must not hide all others. Raises msgspec.DecodeError for what is no object.
        """
        identity = decode_deep(self._envelope, raw).metadata
        try:
            return Item(identity, self._model.decode(raw))
        except msgspec.DecodeError as error:
            return Item(identity, None, str(error))
        except RecursionError:
            return Item(identity, None, "the object is nested too deeply")


MAX_DEPTH = 12_000
"""Deeper than what API servers store: Go's JSON decoder takes 10,000 levels."""


def decode_deep(decoder: "msgspec.json.Decoder[T]", raw: bytes | msgspec.Raw) -> T:
    """Decode the shallow part of what may be nested deeply: one such object must not end a list or watch.

    Raises msgspec.DecodeError.
    """
    try:
        return decoder.decode(raw)
    except RecursionError:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual, MAX_DEPTH))
        try:
            return decoder.decode(raw)
        except RecursionError as error:
            raise msgspec.DecodeError("nested too deeply") from error
        finally:
            sys.setrecursionlimit(usual)


_PAGES = msgspec.json.Decoder(_Page)


def list_all(
    send: Callable[[Request], bytes],
    resource: Resource[T],
    query: Query,
    page_size: int,
    not_older_than: str = "",
) -> Listing[T]:
    """Read every chunk; starts over once when the continue token expires under way."""
    try:
        return _read_pages(send, resource, query, page_size, not_older_than)
    except errors.Expired:
        # Large lists outlive a compaction; an unchunked list cannot.
        return _read_pages(send, resource, query, 0, not_older_than)


def _read_pages(
    send: Callable[[Request], bytes],
    resource: Resource[T],
    query: Query,
    page_size: int,
    not_older_than: str,
) -> Listing[T]:
    decoder = ItemDecoder(resource.model)
    parameters = query.parameters()
    if page_size:
        parameters["limit"] = str(page_size)
    if not_older_than:
        parameters |= {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"}
    items: list[Item[T]] = []
    while True:
        page = _decode_page(send(Request("GET", resource.path(query.namespace), parameters)), resource)
        items += [decoder.decode(raw) for raw in page.items or ()]
        if not page.metadata.next:
            return Listing(tuple(items), page.metadata.resource_version)
        parameters = {**parameters, "continue": page.metadata.next}
        parameters.pop("resourceVersion", None)
        parameters.pop("resourceVersionMatch", None)


def _decode_page(data: bytes, resource: Resource[Any]) -> _Page:
    try:
        return decode_deep(_PAGES, data)
    except msgspec.DecodeError as error:
        raise errors.Undecodable(f"list of {resource.plural} is no list: {error}") from error
