"""The HTTP listener: plain on loopback, else TLS with client certificates; sizes, times and connections bounded.

`listen` refuses to serve on another address than loopback without TLS: who reaches the state and the extender
may read it and bind pods.
"""

import ipaddress
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 4 * 2**20
"""Largest body; an extender that is node cache capable is sent names, which fit for any cluster."""
MAX_CONNECTIONS = 64
READ_SECONDS = 10.0
"""Longest time from the first byte of a request to its last."""
IDLE_SECONDS = 90.0
"""Longest time that a connection stays open between two requests; clients keep theirs about as long."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes
    content_type: str = "application/json"


class Answering(Protocol):
    """Answers requests; independent of how they arrive."""

    def answer(self, method: str, path: str, body: bytes) -> Reply:
        """Answer one request. Never raises."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and the authority that signs the clients' certificates."""

    certificate: Path
    key: Path
    client_authority: Path

    def context(self) -> ssl.SSLContext:
        """A context that demands a client certificate. Raises OSError (ssl.SSLError) for files that do not serve."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class ExposedError(ValueError):
    """An address that others reach, without TLS; the message says what to do."""


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Listener(ThreadingHTTPServer):
    """Serves at most `MAX_CONNECTIONS` at once; a connection that is late with its request is closed."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        self.tls: ssl.SSLContext | None = None
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._deadlines: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def expect(self, connection: socket.socket, seconds: float | None) -> None:
        """Close the connection after this time unless told otherwise; None lets it be."""
        with self._lock:
            if seconds is None:
                self._deadlines.pop(connection, None)
            else:
                self._deadlines[connection] = time.monotonic() + seconds

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand the connection to a thread, or close it when there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self.expect(request, READ_SECONDS)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.expect(request, None)
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Greet in the connection's own thread, so that a slow client delays no other."""
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        self.expect(request, None)
        request.settimeout(READ_SECONDS)
        with self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as greeted:
            try:
                self.expect(greeted, READ_SECONDS)
                greeted.do_handshake()
                super().finish_request(greeted, client_address)
            finally:
                self.expect(greeted, None)

    def service_actions(self) -> None:
        """Close connections that are late; called about twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, deadline in self._deadlines.items() if deadline <= now]
        for connection in late:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away or speak no TLS are an ordinary thing."""
        log.debug("connection %s of %s", request, client_address, exc_info=True)


def listen(door: Answering, address: str, port: int, tls: TlsFiles | None = None, *, public: bool = False) -> Listener:
    """Serve in the background; `shutdown()` ends it. Port 0 takes a free one (see `server_port`).

    `public` says that the answers are for anybody. Raises ExposedError, or OSError for address or files.
    """
    if tls is None and not public and not is_loopback(address):
        raise ExposedError(
            f"{address} is reached by others: give --tls-cert, --tls-key and --client-ca, or --address 127.0.0.1"
        )

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_SECONDS
        server: Listener

        def handle_one_request(self) -> None:
            self.server.expect(self.connection, IDLE_SECONDS)
            super().handle_one_request()

        def parse_request(self) -> bool:
            self.server.expect(self.connection, READ_SECONDS)
            return super().parse_request()

        def _handle(self) -> None:
            refused = _refusal(self.headers)
            if refused is not None:
                self.close_connection = True
                self._send(refused)
                return
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True
                return
            self.server.expect(self.connection, None)
            self._send(door.answer(self.command, self.path, body))

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Length", str(len(reply.body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = _handle  # noqa: N815 (the base class's names)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
            log.debug(format, *args)

    server = Listener((address, port), Handler)
    server.tls = tls.context() if tls is not None else None
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def _refusal(headers: Any) -> Reply | None:
    """Why a request is not read, None when it is."""
    if headers.get("Origin") is not None:
        return _text(403, "pages in a browser have no business here")
    if headers.get("Transfer-Encoding") is not None:
        return _text(411, "send a Content-Length")
    text = headers.get("Content-Length") or "0"
    if not (text.isascii() and text.isdigit()):
        return _text(400, "Content-Length is no number")
    if len(text) > 12 or int(text) > MAX_BODY_BYTES:
        return _text(413, f"more than {MAX_BODY_BYTES} bytes; make the extender nodeCacheCapable")
    return None


def _text(status: int, message: str) -> Reply:
    return Reply(status, f"{message}\n".encode(), "text/plain")
