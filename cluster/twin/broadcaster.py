"""Broadcaster of events to all open watches, with bookmarks, timeouts and injected faults."""

from cluster.twin import http_messages
from cluster.twin.api import WatchRequest
from cluster.twin.database import Database, DatabaseWrite, ObjectTable
from cluster.twin.faults import Fault, FaultType
from cluster.twin.server import Connection, Server
from cluster.twin.status_errors import StatusError
from cluster.twin.watch_session import WatchSession, error_chunk, event_chunk


class WatchBroadcaster:
    """Sends events to the watches that they concern. Everything is called under the server's lock."""

    def __init__(self, database: Database, server: Server, bookmark_seconds: float) -> None:
        self._database = database
        self._server = server
        self._bookmark_seconds = bookmark_seconds
        self._watches: dict[Connection, WatchSession] = {}
        self._stream_faults: dict[Connection, tuple[FaultType, int]] = {}

    def start(self) -> None:
        """Begin to send bookmarks."""
        self._server.after(self._bookmark_seconds, self._send_bookmarks)

    def open(self, connection: Connection, opening: WatchRequest) -> None:
        """Answer a watch: first what is past or present, then what comes."""
        session = opening.session
        connection.streaming = True
        self._server.send(connection, http_messages.STREAM_HEAD)
        try:
            past = session.present() if opening.revision is None else session.replay(opening.revision)
            for data in past:
                self._server.send(connection, data)
                self._count(connection, 1)
        except StatusError as error:
            self._stream_faults.pop(connection, None)
            self._server.send(connection, error_chunk(error))
            self._server.end_stream(connection)
            return
        self._server.after(session.lasts_seconds, lambda: self._end(connection, session))
        self._watches[connection] = session
        self._count(connection, 0)

    def broadcast(self, table: ObjectTable, event: DatabaseWrite) -> None:
        """Send the event to every watch that selects it; the bytes are made once."""
        chunks: dict[str, bytes] = {}
        for connection, session in list(self._watches.items()):
            if session.table is table and (kind := session.view(event)):
                data = chunks.get(kind) or chunks.setdefault(kind, event_chunk(kind, event.record.data))
                self._server.send_if_keeping_up(connection, data)
                self._count(connection, 1)

    def doom(self, connection: Connection, fault: Fault) -> None:
        """Let the watch about to open stall or close after the fault's number of events."""
        self._stream_faults[connection] = (fault.type, fault.writes)

    def stall_all(self) -> int:
        """Make all open watches fall silent without closing; returns their number."""
        self._reap()
        for connection in self._watches:
            connection.stalled = True
        return len(self._watches)

    def drop_all(self) -> int:
        """Close all open watches without an error; returns their number."""
        self._reap()
        connections = list(self._watches)
        for connection in connections:
            self.forget(connection)
            self._server.close(connection)
        return len(connections)

    def forget(self, connection: Connection) -> None:
        """Send nothing more to this connection."""
        self._watches.pop(connection, None)
        self._stream_faults.pop(connection, None)

    def count_open(self) -> int:
        """Number of open watches."""
        self._reap()
        return len(self._watches)

    def _end(self, connection: Connection, session: WatchSession) -> None:
        if self._watches.get(connection) is not session or connection.closed:
            return
        self.forget(connection)
        if connection.stalled:
            self._server.close(connection)
            return
        if session.bookmarks:
            self._server.send(connection, session.bookmark(self._database.revision))
        self._server.end_stream(connection)

    def _count(self, connection: Connection, events: int) -> None:
        doom = self._stream_faults.get(connection)
        if doom is None:
            return
        kind, left = doom[0], doom[1] - events
        self._stream_faults[connection] = (kind, left)
        if left > 0:
            return
        if kind is FaultType.STALL:
            del self._stream_faults[connection]
            connection.stalled = True
        else:
            self.forget(connection)
            self._server.close(connection, politely=True)

    def _send_bookmarks(self) -> None:
        self._reap()
        for connection, session in self._watches.items():
            if session.bookmarks:
                self._server.send(connection, session.bookmark(self._database.revision))
        self._server.after(self._bookmark_seconds, self._send_bookmarks)

    def _reap(self) -> None:
        for connection in [item for item in self._watches if item.closed]:
            self.forget(connection)
