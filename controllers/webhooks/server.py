"""HTTPS server of the webhooks: few resources for each client, an end to each request, no word of what went wrong."""

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from controllers.webhooks.routes import Reply
from controllers.webhooks.settings import WebhookSettings

log = logging.getLogger(__name__)

Answerer = Callable[[str, bytes], Reply]
"""Answers a review: path and body in."""

SWEEP_SECONDS = 0.5


class Connection:
    """A client's connection; `deadline_seconds` (monotonic) is when it is ended from outside."""

    def __init__(self, opened: socket.socket, deadline_seconds: float) -> None:
        self.socket = opened
        self.deadline_seconds = deadline_seconds

    def end(self) -> None:
        """Wake the thread that serves it, which then closes it."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class WebhookServer:
    """Serves reviews until stopped; a thread for each connection, and one that ends slow ones.

    `context` may get its certificate later: handshakes fail until then.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        context: ssl.SSLContext,
        answer: Answerer,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings = settings
        self.answer = answer
        self.ready = ready
        self.refused_connections = 0
        self._context = context
        self._listener = socket.create_server((settings.address, settings.port), backlog=128)
        self._open: set[Connection] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._accept, name="webhook-accept", daemon=True),
            threading.Thread(target=self._sweep, name="webhook-sweep", daemon=True),
        ]

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Begin to accept connections."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop accepting, and end all connections."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            found = list(self._open)
        for connection in found:
            connection.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(5.0)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                opened, address = self._listener.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                # Out of descriptors, say: leave time for some to be closed.
                log.warning("accepting a connection: %s", error)
                self._stopping.wait(0.1)
                continue
            connection = Connection(opened, time.monotonic() + self.settings.request_seconds)
            with self._lock:
                full = len(self._open) >= self.settings.most_connections
                if not full:
                    self._open.add(connection)
            if full:
                self.refused_connections += 1
                opened.close()
                continue
            threading.Thread(target=self._serve, args=(connection, address), name="webhook", daemon=True).start()

    def _serve(self, connection: Connection, address: Any) -> None:
        try:
            with contextlib.closing(connection.socket) as plain:
                plain.settimeout(self.settings.idle_seconds)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # The handshake comes second: a client that drips it is ended from outside, by the socket that counts.
                unshaken = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                with unshaken as secured:
                    connection.socket = secured
                    secured.do_handshake()
                    _Handler(secured, address, self, connection)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; a socket that was ended is a ValueError
            log.debug("connection of %s: %s", address, error)
        except Exception:
            log.exception("connection of %s", address)
        finally:
            with self._lock:
                self._open.discard(connection)

    def _sweep(self) -> None:
        while not self._stopping.wait(SWEEP_SECONDS):
            now = time.monotonic()
            with self._lock:
                late = [connection for connection in self._open if connection.deadline_seconds < now]
            for connection in late:
                connection.end()


class _Handler(BaseHTTPRequestHandler):
    """One connection, request by request."""

    protocol_version = "HTTP/1.1"
    # Head and body of an answer leave in one packet.
    wbufsize = -1

    def __init__(self, opened: ssl.SSLSocket, address: Any, server: WebhookServer, connection: Connection) -> None:
        self._webhooks = server
        self._connection = connection
        super().__init__(opened, address, cast(Any, server))

    def handle_one_request(self) -> None:
        """Wait for a request, and answer it within its time."""
        settings = self._webhooks.settings
        self._connection.deadline_seconds = time.monotonic() + settings.idle_seconds
        # Blocks for the first byte, after which the clock of the request runs.
        if not self.rfile.peek(1):  # type: ignore[attr-defined]
            self.close_connection = True
            return
        self._connection.deadline_seconds = time.monotonic() + settings.request_seconds
        super().handle_one_request()

    def do_POST(self) -> None:
        """Answer a review."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or self.headers.get("Transfer-Encoding"):
            self._refuse(411, "a review needs a Content-Length")
        elif int(length) > self._webhooks.settings.largest_body_bytes:
            self._refuse(413, "the review is too long")
        elif not self._webhooks.ready():
            self._refuse(503, "first lists are not in")
        else:
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                self.close_connection = True
                return
            found = self._webhooks.answer(self.path.partition("?")[0], body)
            content_type = "application/json" if found.status == 200 else "text/plain"
            self._send(found.status, found.body, content_type)

    def do_GET(self) -> None:
        """Answer health and readiness."""
        path = self.path.partition("?")[0]
        if path in ("/healthz", "/livez"):
            self._send(200, b"ok", "text/plain")
        elif path == "/readyz":
            ready = self._webhooks.ready()
            self._send(200 if ready else 503, b"ok" if ready else b"first lists are not in", "text/plain")
        else:
            self._send(404, b"there are /healthz and /readyz\n", "text/plain")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse a request that is no HTTP, in a line of plain text."""
        self._refuse(code, "not a request that is served here")

    def version_string(self) -> str:
        """Name the server without versions."""
        return "koord"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Log requests at debug level only."""
        log.debug(format, *args)

    def _refuse(self, status: int, why: str) -> None:
        # The rest of the request is not read, so the connection cannot be used again.
        self.close_connection = True
        self._send(status, f"{why}\n".encode(), "text/plain")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
