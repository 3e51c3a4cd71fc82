"""Open connections and their bounds: which one is closed when there are too many, and when one is late."""

import ipaddress
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of a listener."""

    connections: int = 64
    """Connections at once."""
    connections_by_address: int = 32
    """Connections at once from one IPv4 address or one IPv6 network of 64 bits."""
    header_bytes: int = 32 * 1024
    """Size of the request line and the headers together."""
    body_bytes: int = 4 * 2**20
    """Size of a body."""
    request_seconds: float = 10.0
    """Time for the TLS handshake; for a request from its first byte to its last; and to take the reply."""
    idle_seconds: float = 90.0
    """Time between two requests of a connection."""


class Endable(Protocol):
    """What a connection is closed by."""

    def end(self) -> None:
        """Wake the thread that serves the connection, which then closes it. Never raises."""


@dataclass(slots=True, eq=False)
class Connection:
    """One connection. Between the last byte of a request and its answer it is `answering`, and is let be."""

    network: str
    socket: Endable
    since_seconds: float
    """When it last sent a whole request, or was opened; monotonic."""
    deadline_seconds: float
    answering: bool = False


@dataclass
class Connections:
    """All connections of a listener. When there are too many, the address that holds most of them loses the idlest one.

    A connection that is being answered is never closed for another. Safe for several threads.
    """

    bounds: Bounds
    clock: Callable[[], float]
    refused: int = 0
    """Connections that were closed unanswered, because all others were being answered."""
    dropped: int = 0
    """Connections that were closed to make room."""
    _open: set[Connection] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, address: str, socket: Endable) -> Connection | None:
        """Return the connection, or None when it must be closed."""
        now = self.clock()
        made = Connection(network_of(address), socket, now, now + self.bounds.request_seconds)
        with self._lock:
            victim = None
            same = [each for each in self._open if each.network == made.network]
            if len(same) >= self.bounds.connections_by_address:
                victim = _idlest(same)
            elif len(self._open) >= self.bounds.connections:
                victim = _idlest(self._open)
            else:
                self._open.add(made)
                return made
            if victim is None:
                self.refused += 1
                return None
            self._open.discard(victim)
            self._open.add(made)
            self.dropped += 1
        victim.socket.end()
        return made

    def remove(self, connection: Connection) -> None:
        """Forget a connection that was closed."""
        with self._lock:
            self._open.discard(connection)

    def idle(self, connection: Connection) -> None:
        """Wait for the first byte of a request."""
        connection.deadline_seconds = self.clock() + self.bounds.idle_seconds

    def reading(self, connection: Connection) -> None:
        """Wait for the rest of a request."""
        connection.deadline_seconds = self.clock() + self.bounds.request_seconds

    def answering(self, connection: Connection) -> None:
        """The request is in: the time is ours now."""
        with self._lock:
            connection.answering = True
        connection.deadline_seconds = float("inf")

    def sending(self, connection: Connection) -> None:
        """The reply is made: the client must take it."""
        now = self.clock()
        connection.since_seconds, connection.deadline_seconds = now, now + self.bounds.request_seconds
        with self._lock:
            connection.answering = False

    def late(self) -> list[Connection]:
        """Connections whose time is over."""
        now = self.clock()
        with self._lock:
            return [connection for connection in self._open if connection.deadline_seconds <= now]

    def all(self) -> list[Connection]:
        """Every connection."""
        with self._lock:
            return list(self._open)


def network_of(address: str) -> str:
    """Return what connections are counted by: an IPv4 address, or the 64-bit network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _idlest(connections: Iterable[Connection]) -> Connection | None:
    """The connection that waits longest for its client, of the network that has most such connections."""
    waiting = [connection for connection in connections if not connection.answering]
    counts = Counter(connection.network for connection in waiting)
    return max(waiting, key=lambda each: (counts[each.network], -each.since_seconds), default=None)
