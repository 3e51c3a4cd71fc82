"""Writes as values: what a plan wants changed, on which version of the object, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from api.kube.meta import ObjectMeta, ObjectReference
from api.placement import PlacementRequest
from cluster.events import Event
from cluster.resources import Document, Key, Resource


class Verb(StrEnum):
    """Kind of a write."""

    CREATE = "create"
    PATCH = "patch"
    """A merge patch (RFC 7386)."""
    DELETE = "delete"
    EVICT = "evict"


@dataclass(frozen=True, slots=True)
class Write:
    """One change to one object.

    `body` is the object to create, the merge patch, or None. `version` is the resourceVersion of the object that the
    plan saw: a patch or deletion is made on that version only, so that nothing is ever written on a stale read. `uid`
    guards deletions and evictions against a successor of the same name.
    """

    verb: Verb
    resource: Resource[Any]
    key: Key
    body: Any
    reason: str
    """A sentence for people: what leads to this value."""
    subresource: str = ""
    version: str = ""
    uid: str = ""
    event: Event | None = None
    """Recorded once the write is done."""
    question: PlacementRequest | None = None
    """Placement that the scheduler must find first; without its answer, or a node for the last pod, nothing is sent."""
    instead: "Write | None" = None
    """Sent when the API server refuses this one for good (forbidden, invalid)."""
    grace_seconds: int | None = None
    """Grace period of a deletion or eviction; None leaves it to the pod."""
    strategic: bool = False
    """The patch is Kubernetes' own merge, which merges lists of named things by name; of builtin kinds only."""
    moves: "Move | None" = None
    """Set where the write moves a pod from its node."""
    standing: "Standing | None" = None
    """Object that the API server must still know, asked just before; else nothing is sent and it is planned again."""

    @property
    def target(self) -> "Target":
        """The object that it changes."""
        return Target(kind_name(self.resource), self.key)


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that is taken from its node, as metrics count it."""

    strategy: str
    """Plugin of the descheduler that chose it; `manual` for a migration that a person or another program asked for."""
    node: str


@dataclass(frozen=True, slots=True)
class Standing:
    """An object that is there and not being deleted: a conclusion from two lists may hold for neither's time."""

    resource: Resource[Any]
    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class Target:
    """An object by kind (`plural.group`) and key."""

    kind: str
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Writes:
    """Result of a plan: writes, and Events about what needs a person's attention and no write.

    Writes to one object are made in their order. A warning is recorded when it is new or its note changed.
    """

    writes: Sequence[Write] = ()
    warnings: Sequence[Event] = ()


def kind_name(resource: Resource[Any]) -> str:
    """Return `plural`, or `plural.group` of kinds outside the core group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def create(resource: Resource[Any], obj: Any, reason: str, *, event: Event | None = None) -> Write:
    """Return the creation of `obj`, a document or a struct with metadata."""
    meta = metadata_of(obj)
    return Write(Verb.CREATE, resource, Key(meta.namespace, meta.name), obj, reason, event=event)


def patch(
    resource: Resource[Any],
    current: Any,
    body: Mapping[str, Any],
    reason: str,
    *,
    subresource: str = "",
    event: Event | None = None,
    strategic: bool = False,
) -> Write:
    """Return a merge patch of the object `current`, on the version of it that was seen."""
    meta = metadata_of(current)
    key = Key(meta.namespace, meta.name)
    version = meta.resource_version
    made = Write(Verb.PATCH, resource, key, dict(body), reason, subresource, version, meta.uid, event)
    return replace(made, strategic=True) if strategic else made


def delete(resource: Resource[Any], current: Any, reason: str, *, event: Event | None = None) -> Write:
    """Return the deletion of the object `current`, on the version of it that was seen."""
    meta = metadata_of(current)
    key = Key(meta.namespace, meta.name)
    return Write(Verb.DELETE, resource, key, None, reason, "", meta.resource_version, meta.uid, event)


def evict(resource: Resource[Any], pod: Any, reason: str, *, event: Event | None = None) -> Write:
    """Return the eviction of a pod within its disruption budgets; one that a budget forbids is planned again."""
    meta = metadata_of(pod)
    key = Key(meta.namespace, meta.name)
    return Write(Verb.EVICT, resource, key, None, reason, "", "", meta.uid, event)


def metadata_of(obj: Any) -> ObjectMeta:
    """Return the metadata of a struct or document."""
    if isinstance(obj, Mapping):
        return msgspec.convert(obj.get("metadata", {}), ObjectMeta)
    meta = obj.metadata
    return meta if isinstance(meta, ObjectMeta) else msgspec.convert(meta, ObjectMeta, from_attributes=True)


def on_version(write: Write, version: str) -> Write:
    """Return the write, based on the version that the one before it left."""
    return replace(write, version=version)


def patch_body(write: Write) -> Document:
    """Return the body to send: the patch with the version that it is made on."""
    body: Document = dict(write.body)
    if write.version:
        body["metadata"] = {**body.get("metadata", {}), "resourceVersion": write.version}
    return body


def reference(resource: Resource[Any], obj: Any) -> ObjectReference:
    """Return the reference that Events about `obj` carry."""
    meta = metadata_of(obj)
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
    )
