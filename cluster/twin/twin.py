"""Twin of an API server: database, rules, faults and HTTP put together."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Self

import msgspec

from cluster.client import Client
from cluster.config import plain_endpoint
from cluster.resources import Document, Key, Resource
from cluster.settings import ClientSettings
from cluster.transport import Endpoint
from cluster.twin import disruption, http_messages
from cluster.twin.api import Answer, Api, Route, WatchRequest
from cluster.twin.broadcaster import WatchBroadcaster
from cluster.twin.database import Database, DatabaseWrite, ObjectTable, Record
from cluster.twin.faults import WATCH_FAULTS, Fault, Faults, FaultType
from cluster.twin.http_messages import HttpRequest
from cluster.twin.kinds import ServedKind, builtin_kinds
from cluster.twin.registry import ObjectRegistry, decode, own
from cluster.twin.server import Connection, Server
from cluster.twin.status_errors import StatusError

log = logging.getLogger(__name__)

UNLIMITED = ClientSettings(requests_per_second=1e6, burst=1_000_000)


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """Settings of the twin; the defaults are those of a bare API server without controllers."""

    seed: int = 0
    """Of names, uids and the choice of faults."""
    port: int = 0
    """0 takes a free one."""
    bookmark_seconds: float = 60.0
    """Distance of bookmarks on each watch."""
    history_length: int = 100_000
    """Events kept per kind; an older resource version answers 410."""
    termination_seconds: float | None = None
    """Seconds that kubelets take to end a bound pod; None leaves it terminating for ever, as without kubelets."""
    disruption_controller: bool = False
    """Keep the status of disruption budgets current; without it they must be given one, as in envtest."""
    slow_reader_bytes: int = 64 << 20
    """A watch that is this far behind is closed without an error."""


class Twin:
    """An API server in this process, over HTTP on loopback. Start and stop it, or use it in `with`.

    `faults` holds the injected faults. Other methods act on the database directly, without a client.
    """

    def __init__(self, settings: TwinSettings | None = None) -> None:
        self.settings = settings or TwinSettings()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.faults = Faults(Random(f"{self.settings.seed}-faults"))
        self._database = Database(builtin_kinds(), self.settings.history_length)
        self._registry = ObjectRegistry(
            self._database, lambda: datetime.now(UTC), Random(self.settings.seed), self._on_terminating
        )
        self._api = Api(self._database, self._registry)
        self._unsettled: set[str] = set()
        self._server = Server(self._handle, port=self.settings.port, slow_reader_bytes=self.settings.slow_reader_bytes)
        self._broadcaster = WatchBroadcaster(self._database, self._server, self.settings.bookmark_seconds)
        self._database.listeners += [self._note_unsettled, self._broadcaster.broadcast]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to serve."""
        self._server.start()
        with self._server.lock:
            self._broadcaster.start()

    def stop(self) -> None:
        """Close all connections."""
        self._server.stop()

    @property
    def url(self) -> str:
        """URL that it listens on."""
        return f"http://127.0.0.1:{self._server.port}"

    def endpoint(self) -> Endpoint:
        """Return the endpoint for a client."""
        return plain_endpoint(self.url)

    def client(self, settings: ClientSettings | None = None) -> Client:
        """Return a client of this twin, by default without a rate limit."""
        return Client(self.endpoint(), settings or UNLIMITED)

    # Direct access, without a client.

    def serve(self, resource: Resource[Any], *, status: bool = True) -> None:
        """Serve a custom kind without its definition: any fields are kept."""
        with self._server.lock:
            self._database.serve(
                ServedKind(
                    resource.kind,
                    resource.plural,
                    resource.group,
                    resource.version,
                    resource.namespaced,
                    status=status,
                    unconditional=False,
                    custom=True,
                )
            )

    def load(self, resource: Resource[Any], objects: Iterable[Any]) -> list[Key]:
        """Create objects (documents or structs) at once, without HTTP; a status given stays. Returns their keys."""
        with self._server.lock:
            keys = [self._load(self._table(resource), obj) for obj in objects]
            self._after_write()
        return keys

    def objects(self, resource: Resource[Any]) -> dict[Key, Document]:
        """Return the stored documents; do not change them."""
        with self._server.lock:
            return {key: record.document for key, record in self._table(resource).records.items()}

    def history(self, resource: Resource[Any]) -> list[DatabaseWrite]:
        """Every write to a kind in order, as far as it is remembered."""
        with self._server.lock:
            return list(self._table(resource).history)

    def compact(self) -> None:
        """Forget history and snapshots: resuming and continuing answer 410."""
        with self._server.lock:
            self._database.compact()
            self._api.forget_snapshots()

    def stall_watches(self) -> int:
        """Make all open watches fall silent without closing; returns their number."""
        with self._server.lock:
            return self._broadcaster.stall_all()

    def drop_watches(self) -> int:
        """Close all open watches without an error; returns their number."""
        with self._server.lock:
            return self._broadcaster.drop_all()

    @property
    def revision(self) -> int:
        """The counter behind resource versions."""
        return self._database.revision

    @property
    def open_watches(self) -> int:
        """Number of open watches."""
        with self._server.lock:
            return self._broadcaster.count_open()

    # Requests.

    def _handle(self, connection: Connection, request: HttpRequest) -> None:
        try:
            found = self._api.discover(request)
            if found is not None:
                self._send(connection, found)
                return
            route = self._api.route(request)
            self.requests[(route.verb, route.table.kind.plural)] += 1
            fault = self.faults.strike(route.verb, route.table.kind.plural)
            if fault is None:
                self._send(connection, self._carry_out(connection, request, route))
            else:
                self._misbehave(connection, request, route, fault)
        except StatusError as error:
            self._send(connection, _refusal(error))
        except Exception as error:
            # A malformed object must not end the server for other clients.
            log.exception("%s %s", request.method, request.path)
            self._send(connection, _refusal(StatusError(500, "InternalError", repr(error))))

    def _carry_out(self, connection: Connection, request: HttpRequest, route: Route) -> Answer | None:
        try:
            outcome = self._api.answer(request, route)
        finally:
            self._after_write()
        if isinstance(outcome, WatchRequest):
            self._broadcaster.open(connection, outcome)
            return None
        return outcome

    def _misbehave(self, connection: Connection, request: HttpRequest, route: Route, fault: Fault) -> None:
        if fault.type in WATCH_FAULTS:
            self._broadcaster.doom(connection, fault)
            self._send(connection, self._carry_out(connection, request, route))
            return
        if fault.type is FaultType.STALE:
            self._send(connection, self._api.stale(route, request, fault.writes))
            return
        if fault.type is FaultType.DELAY:
            self._delay(connection, lambda: self._carry_out(connection, request, route), fault.seconds)
            return
        if fault.after:
            self._carry_out(connection, request, route)
        if fault.type is FaultType.DROP:
            self._close(connection)
        else:
            self._send(connection, _refusal(fault.error()))

    def _delay(self, connection: Connection, act: Callable[[], Answer | None], seconds: float) -> None:
        try:
            answer = act()
        except StatusError as error:
            answer = _refusal(error)
        if answer is None:
            return
        connection.paused = True

        def release() -> None:
            if not connection.closed:
                self._send(connection, answer)
                self._server.resume(connection)

        self._server.after(seconds, release)

    def _send(self, connection: Connection, answer: Answer | None) -> None:
        if answer is not None and not connection.closed:
            data = http_messages.answer(answer.status, answer.body, answer.retry_after_seconds)
            self._server.send(connection, data)

    def _close(self, connection: Connection) -> None:
        self._broadcaster.forget(connection)
        self._server.close(connection)

    # Controllers and timers of the server.

    def _note_unsettled(self, table: ObjectTable, event: DatabaseWrite) -> None:
        if self.settings.disruption_controller and table.kind.name in ("Pod", "PodDisruptionBudget"):
            self._unsettled.add(event.record.key.namespace)

    def _after_write(self) -> None:
        while self._unsettled:
            disruption.update_budgets(self._registry, self._unsettled.pop())
        self._server.flush_soon()

    def _on_terminating(self, table: ObjectTable, record: Record) -> None:
        seconds = self.settings.termination_seconds
        if seconds is None:
            return
        uid = record.document["metadata"]["uid"]

        def finish() -> None:
            self._registry.finish_termination(table, record.key, uid)
            self._after_write()

        self._server.after(seconds, finish)

    def _load(self, table: ObjectTable, obj: Any) -> Key:
        # The caller keeps its object; what is stored is written to.
        document: Document = decode(msgspec.json.encode(obj))
        namespace = document.get("metadata", {}).get("namespace", "") if table.kind.namespaced else ""
        status = document.get("status")
        record = self._registry.create(table, namespace, document)
        if status is not None and record.document.get("status") != status:
            self._registry.put(table, record.key, own(record.document) | {"status": status})
        return record.key

    def _table(self, resource: Resource[Any]) -> ObjectTable:
        table = self._database.table(resource.group, resource.version, resource.plural)
        if table is None:
            raise KeyError(f"{resource.kind} is not served; create its CustomResourceDefinition or call serve()")
        return table


def _refusal(error: StatusError) -> Answer:
    return Answer(error.http_status, error.body(), error.retry_after_seconds)
