"""The API server's rules for writing objects: identity, versions, subresources, deletion with finalizers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from cluster.resources import Document, Key, PatchType
from cluster.twin import admission, patches, server_side_apply, status_errors
from cluster.twin.database import Database, ObjectTable, Record
from cluster.twin.pruning import prune

_UNDERSTOOD_PATCHES = {member.value: member for member in PatchType}


@dataclass(frozen=True, slots=True)
class PatchRequest:
    """A PATCH as it came in."""

    content_type: str
    body: bytes
    field_manager: str = ""
    force: bool = False


@dataclass(slots=True)
class ObjectRegistry:
    """Applies writes to the database. `clock` gives the wall time, `random` names and uids.

    `on_terminating` is called with pods that wait for their kubelet.
    """

    database: Database
    clock: Callable[[], datetime]
    random: Random
    on_terminating: Callable[[ObjectTable, Record], None]
    _owners: dict[tuple[str, Key], server_side_apply.Ownership] = field(default_factory=dict)

    def create(self, table: ObjectTable, namespace: str, document: Document, *, dry_run: bool = False) -> Record:
        """POST; `document` is handed over."""
        kind = table.kind
        metadata = self._checked_metadata(table, namespace, document)
        if metadata.pop("resourceVersion", ""):
            raise status_errors.bad_request("resourceVersion should not be set on objects to be created")
        key = Key(namespace, admission.name_for(table, namespace, metadata, self.random))
        if key in table.records:
            raise status_errors.already_exists(kind.qualified, key.name)
        admission.validate_metadata(kind.name, metadata)
        metadata |= {
            "name": key.name,
            "uid": admission.new_uid(self.random),
            "creationTimestamp": self.stamp(),
            "generation": 1,
        }
        if kind.namespaced:
            metadata["namespace"] = namespace
        metadata.pop("deletionTimestamp", None)
        if kind.status and not kind.status_at_birth:
            document.pop("status", None)
        admission.set_defaults(self.database, table, document)
        if dry_run:
            return Record(key, 0, document, msgspec.json.encode(document))
        created = self.database.put(table, key, document)
        if kind.name == "CustomResourceDefinition":
            # A controller of the server writes the status after the answer, which has null in place of conditions.
            established = own(document)
            admission.establish(established, self.stamp())
            self.database.put(table, key, established)
        return created

    def update(
        self, table: ObjectTable, key: Key, document: Document, subresource: str = "", *, dry_run: bool = False
    ) -> Record:
        """PUT; `document` is handed over."""
        current = self.current(table, key)
        metadata = self._checked_metadata(table, key.namespace, document)
        if metadata.get("name", key.name) != key.name:
            raise status_errors.bad_request("the name of the object does not match the name on the URL")
        if not metadata.get("resourceVersion") and not table.kind.unconditional:
            why = "must be specified for an update"
            raise status_errors.invalid(table.kind.name, key.name, "metadata.resourceVersion", why)
        return self._store(table, current, document, subresource, dry_run=dry_run)

    def patch(
        self, table: ObjectTable, key: Key, change: PatchRequest, subresource: str = "", *, dry_run: bool = False
    ) -> Record:
        """PATCH of every type; apply creates what is missing."""
        kind = _UNDERSTOOD_PATCHES.get(change.content_type)
        if kind is None or (kind is PatchType.STRATEGIC and table.kind.custom):
            message = f"the body of the request was in an unknown format: {change.content_type}"
            raise status_errors.StatusError(415, "UnsupportedMediaType", message)
        body = decode(change.body)
        if kind is PatchType.APPLY:
            return self._apply(table, key, body, change, subresource, dry_run=dry_run)
        current = self.current(table, key)
        if kind is PatchType.JSON:
            patched = patches.json_patch(current.document, body)
        elif kind is PatchType.MERGE:
            patched = patches.merge(current.document, body)
        else:
            patched = patches.strategic(current.document, body)
        return self._store(table, current, own(patched), subresource, dry_run=dry_run)

    def delete(self, table: ObjectTable, key: Key, options: Document, *, dry_run: bool = False) -> Record:
        """DELETE; returns the object, which finalizers or a grace period may keep for a while."""
        current = self.current(table, key)
        self._check_preconditions(table, current, options.get("preconditions") or {})
        grace = _grace_seconds(table, current.document, options)
        metadata = current.document["metadata"]
        if dry_run:
            return current
        is_terminating = bool(metadata.get("deletionTimestamp"))
        if is_terminating and grace >= (metadata.get("deletionGracePeriodSeconds") or 0):
            held = metadata.get("finalizers") or grace > 0
            return current if held else self._remove(table, key)
        is_pod = table.kind.name == "Pod"
        if grace <= 0 and not metadata.get("finalizers") and not is_pod:
            return self._remove(table, key)
        deadline = self.clock() + timedelta(seconds=grace)
        document = own(current.document)
        document["metadata"] |= {
            "deletionTimestamp": _stamp(deadline),
            "deletionGracePeriodSeconds": grace,
            "generation": metadata.get("generation", 0) + 1,
        }
        record = self.database.put(table, key, document)
        if grace <= 0 and not metadata.get("finalizers"):
            # A pod's grace period is written even where it is none: watchers see it modified, then deleted.
            return self._remove(table, key)
        if grace > 0:
            self.on_terminating(table, record)
        return record

    def finish_termination(self, table: ObjectTable, key: Key, uid: str) -> None:
        """Remove a terminating pod as its kubelet does, unless finalizers hold it."""
        record = table.records.get(key)
        if record is not None and record.document["metadata"]["uid"] == uid:
            self.delete(table, key, {"gracePeriodSeconds": 0})

    def put(self, table: ObjectTable, key: Key, document: Document) -> Record:
        """Store an object written by a controller inside the server."""
        return self.database.put(table, key, document)

    def current(self, table: ObjectTable, key: Key) -> Record:
        """The latest state; raises `StatusError` 404."""
        record = table.records.get(key)
        if record is None:
            raise status_errors.not_found(table.kind.qualified, key.name)
        return record

    def stamp(self) -> str:
        """The wall time as metadata carries it."""
        return _stamp(self.clock())

    def _store(
        self, table: ObjectTable, current: Record, document: Document, subresource: str, *, dry_run: bool
    ) -> Record:
        before = current.document
        version = document["metadata"].get("resourceVersion") or str(current.revision)
        uid = document["metadata"].get("uid") or before["metadata"]["uid"]
        if version != str(current.revision) or uid != before["metadata"]["uid"]:
            raise status_errors.modified(table.kind.qualified, current.key.name)
        document = self._restricted(table, before, document, subresource)
        admission.validate_metadata(table.kind.name, document["metadata"])
        _keep_identity(before["metadata"], document["metadata"])
        if table.kind.name == "Pod":
            _refuse_moving(before, document)
        if table.kind.schema is not None:
            document = prune(document, table.kind.schema)
        if document == before or dry_run:
            return current if document == before else Record(current.key, current.revision, document, b"")
        if _essence(document) != _essence(before):
            document["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        if table.kind.name == "CustomResourceDefinition":
            admission.serve_definition(self.database, document)
            admission.establish(document, self.stamp())
        self.database.put(table, current.key, document)
        metadata = document["metadata"]
        # A grace period still running keeps the object, finalizers or not.
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and not held:
            return self._remove(table, current.key)
        return table.records[current.key]

    def _restricted(self, table: ObjectTable, before: Document, wanted: Document, subresource: str) -> Document:
        kind = table.kind
        if subresource == "status":
            if not kind.status:
                raise status_errors.not_found(kind.qualified, "status")
            metadata = wanted["metadata"] if kind.status_writes_metadata else own(before)["metadata"]
            document = {**before, "metadata": metadata}
            document.pop("status", None)
            return document | ({"status": wanted["status"]} if "status" in wanted else {})
        if subresource:
            raise status_errors.not_found(kind.qualified, subresource)
        if kind.status:
            wanted.pop("status", None)
            if "status" in before:
                wanted["status"] = before["status"]
        return {"apiVersion": kind.api_version, "kind": kind.name} | wanted

    def _apply(
        self, table: ObjectTable, key: Key, body: Any, change: PatchRequest, subresource: str, *, dry_run: bool
    ) -> Record:
        if not change.field_manager:
            raise status_errors.bad_request("PatchOptions.meta.k8s.io is invalid: fieldManager: is required for apply")
        if not isinstance(body, dict) or body.get("kind") != table.kind.name:
            raise status_errors.bad_request(f"apply needs apiVersion and kind of a {table.kind.name}")
        ownership = self._owners.setdefault((table.kind.qualified, key), server_side_apply.Ownership())
        current = table.records.get(key)
        before = {} if current is None else current.document
        wanted = own(server_side_apply.apply(before, body, ownership, manager=change.field_manager, force=change.force))
        if current is None:
            wanted.setdefault("metadata", {})["name"] = key.name
            return self.create(table, key.namespace, wanted, dry_run=dry_run)
        return self._store(table, current, wanted, subresource, dry_run=dry_run)

    def _remove(self, table: ObjectTable, key: Key) -> Record:
        self._owners.pop((table.kind.qualified, key), None)
        return self.database.remove(table, key)

    def _checked_metadata(self, table: ObjectTable, namespace: str, document: Document) -> Document:
        kind = table.kind
        if document.setdefault("kind", kind.name) != kind.name:
            raise status_errors.bad_request(f"{document['kind']} in the body, {kind.name} in the URL")
        if document.setdefault("apiVersion", kind.api_version) != kind.api_version:
            raise status_errors.bad_request(f"{document['apiVersion']} in the body, {kind.api_version} in the URL")
        metadata: Document = document.setdefault("metadata", {})
        if metadata.get("namespace", namespace) not in (namespace, ""):
            raise status_errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata.pop("managedFields", None)
        return metadata

    def _check_preconditions(self, table: ObjectTable, record: Record, wanted: Document) -> None:
        have = record.document["metadata"]
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != have[name]:
                why = f"Precondition failed: {name} in precondition: {wanted[name]}, in object meta: {have[name]}"
                raise status_errors.conflict(table.kind.qualified, record.key.name, why)


def decode(body: bytes) -> Any:
    """A request body as plain JSON; raises `StatusError` 400."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise status_errors.bad_request(f"the body of the request is no JSON: {error}") from error


def own(document: Any) -> Document:
    # Encoding and decoding is the fastest deep copy of plain JSON there is.
    if not isinstance(document, dict) or not isinstance(document.get("metadata", {}), dict):
        raise status_errors.bad_request("the patched object is no object")
    copy: Document = msgspec.json.decode(msgspec.json.encode(document))
    return copy


def _stamp(wall: datetime) -> str:
    return wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _keep_identity(before: Document, metadata: Document) -> None:
    for name in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation"):
        _keep(before, metadata, name)
    _keep(before, metadata, "deletionGracePeriodSeconds")
    metadata["resourceVersion"] = before["resourceVersion"]
    metadata.pop("managedFields", None)


def _keep(before: Document, metadata: Document, name: str) -> None:
    if name in before:
        metadata[name] = before[name]
    else:
        metadata.pop(name, None)


def _essence(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in ("metadata", "status")}


def _refuse_moving(before: Document, wanted: Document) -> None:
    have, want = before.get("spec", {}).get("nodeName"), wanted.get("spec", {}).get("nodeName")
    if have != want:
        why = "Forbidden: pod updates may not change fields other than images, tolerations and gates"
        raise status_errors.invalid("Pod", before["metadata"]["name"], "spec", why)


def _grace_seconds(table: ObjectTable, document: Document, options: Document) -> int:
    if table.kind.name != "Pod":
        return 0
    spec, status = document.get("spec", {}), document.get("status", {})
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = options.get("gracePeriodSeconds")
    return int(spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace)
