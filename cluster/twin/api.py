"""Routes, reads and writes of the API, from a request to an answer, without sockets."""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from cluster.resources import Document, Key
from cluster.twin import pod_subresources, status_errors
from cluster.twin.database import Database, ObjectTable, Record, in_namespace
from cluster.twin.discovery import discover
from cluster.twin.http_messages import HttpRequest
from cluster.twin.registry import ObjectRegistry, PatchRequest, decode
from cluster.twin.selectors import predicate
from cluster.twin.status_errors import StatusError
from cluster.twin.watch_session import WatchSession

_SNAPSHOTS = 64
_DEFAULT_WATCH_SECONDS = 1800.0


class Route(NamedTuple):
    """Target of a request: kind, namespace, name and subresource."""

    table: ObjectTable
    namespace: str
    name: str
    subresource: str
    verb: str

    @property
    def key(self) -> Key:
        """The object's key."""
        return Key(self.namespace, self.name)


class Answer(NamedTuple):
    """A response to send."""

    status: int
    body: bytes
    retry_after_seconds: int | None = None


class WatchRequest(NamedTuple):
    """A watch to open; `revision` None means from the present objects on."""

    session: WatchSession
    revision: int | None


class Api:
    """Answers requests from the database. Not locked: the caller serialises."""

    def __init__(self, database: Database, registry: ObjectRegistry) -> None:
        self._database = database
        self._registry = registry
        self._snapshots: OrderedDict[int, tuple[int, list[Record]]] = OrderedDict()

    def discover(self, request: HttpRequest) -> Answer | None:
        """The answer for a path that names no objects; None for all others."""
        body = discover(self._database, request.path) if request.method == "GET" else None
        return None if body is None else Answer(200, body)

    def route(self, request: HttpRequest) -> Route:
        """Return the target of the request; raises `StatusError` 404 for a kind that is not served."""
        parts = request.path.strip("/").split("/")
        core = parts[0] == "api"
        if parts[0] not in ("api", "apis") or len(parts) < (3 if core else 4):
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        group, version, rest = ("", parts[1], parts[2:]) if core else (parts[1], parts[2], parts[3:])
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        table = self._database.table(group, version, rest[0])
        if table is None or len(rest) > 3:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        name, subresource = (*rest[1:], "", "")[:2]
        return Route(table, namespace, name, subresource, _verb(request, name, subresource))

    def answer(self, request: HttpRequest, route: Route) -> Answer | WatchRequest:
        """Carry the request out; raises `StatusError` when it is refused."""
        match route.verb:
            case "get":
                return Answer(200, self._registry.current(route.table, route.key).data)
            case "list":
                return self._list(request, route)
            case "watch":
                return self._watch(request, route)
            case "delete":
                return self._delete(request, route)
            case "bind":
                pod_subresources.bind(self._registry, route.table, route.key, _document(request))
                return Answer(201, status_errors.success(201))
            case "evict":
                body = _document(request)
                pod_subresources.evict(self._registry, route.table, route.key, body, dry_run=_dry_run(request))
                return Answer(201, status_errors.success(201))
        return self._write(request, route)

    def stale(self, route: Route, request: HttpRequest, lag: int) -> Answer:
        """A read as a server `lag` writes behind would answer it."""
        revision = max(self._database.revision - lag, route.table.compacted)
        past = route.table.at(revision)
        if route.verb == "list":
            return self._page(route, self._selected(request, route, past), revision, 0, 0)
        if route.key not in past:
            raise status_errors.not_found(route.table.kind.qualified, route.name)
        return Answer(200, past[route.key].data)

    def forget_snapshots(self) -> None:
        """Make every continue token answer 410."""
        self._snapshots.clear()

    def _write(self, request: HttpRequest, route: Route) -> Answer:
        table, dry_run = route.table, _dry_run(request)
        if route.verb == "create":
            record = self._registry.create(table, route.namespace, _document(request), dry_run=dry_run)
            return Answer(201, record.data)
        existed = route.key in table.records
        if route.verb == "update":
            document = _document(request)
            record = self._registry.update(table, route.key, document, route.subresource, dry_run=dry_run)
        else:
            force = request.parameters.get("force") == "true"
            manager = request.parameters.get("fieldManager", "")
            change = PatchRequest(request.content_type, request.body, manager, force)
            record = self._registry.patch(table, route.key, change, route.subresource, dry_run=dry_run)
        return Answer(200 if existed else 201, record.data or msgspec.json.encode(record.document))

    def _delete(self, request: HttpRequest, route: Route) -> Answer:
        options = _document(request) if request.body else {}
        if "gracePeriodSeconds" in request.parameters:
            options["gracePeriodSeconds"] = int(request.parameters["gracePeriodSeconds"])
        dry_run = _dry_run(request)
        if route.name:
            record = self._registry.delete(route.table, route.key, options, dry_run=dry_run)
            return Answer(200, record.data)
        for record in self._selected(request, route, route.table.records):
            self._registry.delete(route.table, record.key, options, dry_run=dry_run)
        return Answer(200, status_errors.success())

    def _list(self, request: HttpRequest, route: Route) -> Answer:
        token = request.parameters.get("continue", "")
        limit = int(request.parameters.get("limit") or 0)
        if token:
            return self._next_page(route, token, limit)
        self._check_reached(request)
        records = self._selected(request, route, route.table.records)
        return self._page(route, records, self._database.revision, 0, limit)

    def _next_page(self, route: Route, token: str, limit: int) -> Answer:
        number, _, offset = token.partition(".")
        if not number.isdigit() or int(number) not in self._snapshots:
            message = "The provided continue parameter is too old to display a consistent list result."
            raise status_errors.expired(message)
        revision, records = self._snapshots[int(number)]
        return self._page(route, records, revision, int(offset), limit, int(number))

    def _page(
        self, route: Route, records: list[Record], revision: int, start: int, limit: int, snapshot: int = 0
    ) -> Answer:
        end = len(records) if not limit else min(len(records), start + limit)
        metadata: Document = {"resourceVersion": str(revision)}
        if end < len(records):
            snapshot = snapshot or self._keep_snapshot(revision, records)
            metadata |= {"continue": f"{snapshot}.{end}", "remainingItemCount": len(records) - end}
        kind = route.table.kind
        body = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
            kind.name.encode(),
            kind.api_version.encode(),
            msgspec.json.encode(metadata),
            b",".join([record.data for record in records[start:end]]),
        )
        return Answer(200, body)

    def _keep_snapshot(self, revision: int, records: list[Record]) -> int:
        number = max(self._snapshots, default=0) + 1
        self._snapshots[number] = (revision, records)
        while len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return number

    def _selected(self, request: HttpRequest, route: Route, records: dict[Key, Record]) -> list[Record]:
        parameters = request.parameters
        wanted = predicate(route.table.kind, parameters.get("labelSelector", ""), parameters.get("fieldSelector", ""))
        found = in_namespace(records, route.namespace)
        return [record for record in found if wanted is None or wanted(record.document)]

    def _watch(self, request: HttpRequest, route: Route) -> WatchRequest:
        parameters = request.parameters
        fields = parameters.get("fieldSelector", "")
        if route.name:
            fields = ",".join(filter(None, (fields, f"metadata.name={route.name}")))
        session = WatchSession(
            route.table,
            route.namespace,
            predicate(route.table.kind, parameters.get("labelSelector", ""), fields),
            parameters.get("allowWatchBookmarks") in ("true", "1"),
            float(parameters.get("timeoutSeconds") or _DEFAULT_WATCH_SECONDS),
        )
        self._check_reached(request)
        version = parameters.get("resourceVersion", "")
        return WatchRequest(session, int(version) if version not in ("", "0") else None)

    def _check_reached(self, request: HttpRequest) -> None:
        version = request.parameters.get("resourceVersion", "") or "0"
        if not version.isdigit():
            raise status_errors.bad_request(f"invalid resource version {version!r}")
        if int(version) > self._database.revision:
            message = f"Too large resource version: {version}, current: {self._database.revision}"
            cause = ("ResourceVersionTooLarge", "Too large resource version")
            raise StatusError(504, "Timeout", message, causes=(cause,), retry_after_seconds=1)


def _verb(request: HttpRequest, name: str, subresource: str) -> str:
    match request.method:
        case "GET" if request.parameters.get("watch") in ("true", "1"):
            return "watch"
        case "GET":
            return "get" if name else "list"
        case "POST" if subresource == "binding":
            return "bind"
        case "POST" if subresource == "eviction":
            return "evict"
        case "POST" if not name:
            return "create"
        case "PUT" if name:
            return "update"
        case "PATCH" if name:
            return "patch"
        case "DELETE":
            return "delete"
    raise StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def _document(request: HttpRequest) -> Document:
    body = decode(request.body)
    if not isinstance(body, dict):
        raise status_errors.bad_request("the body of the request is no object")
    return body


def _dry_run(request: HttpRequest) -> bool:
    return request.parameters.get("dryRun") == "All"
