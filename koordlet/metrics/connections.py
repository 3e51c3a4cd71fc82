"""The HTTP server of the metrics endpoint, plain or by TLS, with bounds: so many connections, each for so long.

Every connection is a thread and a descriptor of the agent, and whatever reaches the port can open some and be silent.
"""

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

_log = logging.getLogger(__name__)

MOST_CONNECTIONS = 16
SILENT_SECONDS = 5.0
"""Time that a client may be silent; one that is slower than that in all makes room for another."""

HAS_CERTIFICATE = "koord.has_client_certificate"
"""Key of the WSGI environment: whether the client showed a certificate of `[metrics] client_ca`."""


class RenewedContext(Protocol):
    """TLS of new connections, from files that may be replaced."""

    @property
    def context(self) -> ssl.SSLContext:
        """What serves new connections."""
        ...

    def look(self) -> None:
        """Take replaced files into use. Never raises."""
        ...


class _Handler(WSGIRequestHandler):
    timeout = SILENT_SECONDS

    def get_environ(self) -> dict[str, Any]:
        """Say whether the client's certificate was verified."""
        connection = self.connection
        has_certificate = isinstance(connection, ssl.SSLSocket) and bool(connection.getpeercert())
        return super().get_environ() | {HAS_CERTIFICATE: has_certificate}

    def parse_request(self) -> bool:
        """Refuse HTTP/0.9 too, whose requests say no host and whose answers have no status."""
        if not super().parse_request():
            return False
        if self.request_version == "HTTP/0.9":
            self.send_error(400)
            return False
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse what is no HTTP in a line of plain text, with a status line whatever version it came in."""
        body = b"not a request that is served here\n"
        self.request_version = self.protocol_version
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Name the server without versions."""
        return "koord"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing of requests."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves until `shutdown`; beyond the bound the longest connection ends, or the new one where all are young."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: str,
        port: int,
        app: Callable[..., Iterable[bytes]],
        most: int = MOST_CONNECTIONS,
        tls: RenewedContext | None = None,
    ) -> None:
        """Raises OSError where the address cannot be bound."""
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._most = most
        self._tls = tls
        self._open: dict[Any, float] = {}
        """Connections and the monotonic second that each began in."""
        self._lock = threading.Lock()
        self.turned_away = 0
        super().__init__((address, port), _Handler)
        self.set_app(app)

    def get_request(self) -> tuple[Any, Any]:
        """Return a new connection and its address; the handshake is left to the connection's thread."""
        plain, address = super().get_request()
        if self._tls is None:
            return plain, address
        # Whatever ends it from another thread has to have the socket that owns the descriptor: so at once.
        return self._tls.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands within the time that a client may be silent, and answer."""
        if isinstance(request, ssl.SSLSocket):
            request.settimeout(_Handler.timeout)
            request.do_handshake()
        super().finish_request(request, client_address)

    def service_actions(self) -> None:
        """Look for replaced files, between connections."""
        if self._tls is not None:
            self._tls.look()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, where there is room for it."""
        if not self._admits(request):
            self.turned_away += 1
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started: the next scrape may
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that went, or was silent for too long, is its own fault."""
        _log.debug("a connection to the metrics endpoint failed", exc_info=True)

    def _admits(self, request: Any) -> bool:
        now = time.monotonic()
        with self._lock:
            if len(self._open) >= self._most:
                oldest, began = min(self._open.items(), key=lambda item: item[1])
                if now - began < SILENT_SECONDS:
                    return False
                del self._open[oldest]
                # Not the TLS socket's own method, which would have its thread go on in clear text.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._open[request] = now
        return True
