"""Store of an informer: lists and changes go in, real changes come out, each once.

Pure: no clock, no network, no lock. An object is the same state when its uid and resource version are; a
name whose uid changed is one object deleted and another added, also when no event came in between.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from cluster.listing import Identity, Item
from cluster.resources import Key
from cluster.watch import ChangeType, WatchEvent

T = TypeVar("T")


class DeltaType(StrEnum):
    """Kind of a change of the store."""

    ADDED = "added"
    UPDATED = "updated"
    DELETED = "deleted"


class StoreDelta(NamedTuple, Generic[T]):
    """One change of the store. `old` is None when added; when deleted, `new` is None and `old` the last state."""

    type: DeltaType
    key: Key
    old: T | None
    new: T | None


class StoredObject(NamedTuple, Generic[T]):
    """A stored object."""

    identity: Identity
    value: T


class Store(Generic[T]):
    """The latest known objects of one list or watch, by key."""

    def __init__(self) -> None:
        self._entries: dict[Key, StoredObject[T]] = {}
        self.undecodable = 0

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, key: Key) -> StoredObject[T] | None:
        """The object with its identity, or None."""
        return self._entries.get(key)

    def entries(self) -> dict[Key, StoredObject[T]]:
        """A copy of the whole store."""
        return dict(self._entries)

    def replace(self, items: Iterable[Item[T]]) -> list[StoreDelta[T]]:
        """Replace the content by the listed objects; returns the changes, deletions first.

        Deletions come first so that whatever the deleted objects occupied is free for the added ones.
        """
        changed: list[StoreDelta[T]] = []
        listed: set[Key] = set()
        for item in items:
            listed.add(item.identity.key)
            changed += self._put(item)
        gone = [key for key in self._entries if key not in listed]
        return [delta for key in gone for delta in self._remove(key, None)] + changed

    def apply(self, changes: Iterable[WatchEvent]) -> list[StoreDelta[T]]:
        """Follow a watch; repeated and outdated changes come to nothing."""
        return [delta for change in changes for delta in self._follow(change)]

    def _follow(self, change: WatchEvent) -> Iterator[StoreDelta[T]]:
        known = self._entries.get(change.item.identity.key)
        if known is not None and _older(change.item.identity, known.identity):
            return iter(())
        if change.type is ChangeType.DELETED:
            if known is None or known.identity.uid != change.item.identity.uid:
                return iter(())
            return self._remove(change.item.identity.key, change.item.value)
        return self._put(change.item)

    def _put(self, item: Item[T]) -> Iterator[StoreDelta[T]]:
        if item.value is None:
            # The previous state, if any, stays: acting on an unreadable object is worse than acting late.
            self.undecodable += 1
            return
        key = item.identity.key
        known = self._entries.get(key)
        if known is not None and known.identity == item.identity:
            return
        if known is not None and known.identity.uid != item.identity.uid:
            yield from self._remove(key, None)
            known = None
        self._entries[key] = StoredObject(item.identity, item.value)
        if known is None:
            yield StoreDelta(DeltaType.ADDED, key, None, item.value)
        else:
            yield StoreDelta(DeltaType.UPDATED, key, known.value, item.value)

    def _remove(self, key: Key, last: T | None) -> Iterator[StoreDelta[T]]:
        known = self._entries.pop(key)
        yield StoreDelta(DeltaType.DELETED, key, known.value if last is None else last, None)


def newer_version(left: str, right: str) -> bool:
    """Return whether resource version `left` is later than `right`.

    Versions are decimal numbers that grow (Kubernetes states so since 1.35 and has always done so); for
    anything else the answer is False.
    """
    return left.isdigit() and right.isdigit() and int(left) > int(right)


def _older(identity: Identity, known: Identity) -> bool:
    return newer_version(known.resource_version, identity.resource_version)
