"""The HTTP listener: plain on loopback, else TLS; connections, sizes and times bounded.

A thread accepts, one closes late connections, and each connection has a thread of its own. `listen` refuses to serve
on another address than loopback without TLS, unless its answers are for all.
"""

import contextlib
import http.client
import ipaddress
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from cluster.serving.connections import Bounds, Connection, Connections
from cluster.serving.exchange import Answering, Reply, Request
from cluster.serving.tls import ReloadedContext, TlsFiles, client_name

log = logging.getLogger(__name__)

SWEEP_SECONDS = 0.25
"""Interval of the look for late connections."""


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


class _OpenSocket:
    """A socket that another thread can end. The TLS socket takes the place of the plain one at the handshake."""

    def __init__(self, plain: socket.socket) -> None:
        self.current = plain
        self._ended = False
        self._lock = threading.Lock()

    def end(self) -> None:
        """Shut down whatever is open, and what takes its place later."""
        with self._lock:
            self._ended = True
            self._shut()

    def replace(self, secured: socket.socket) -> None:
        """Take the TLS socket, which took the descriptor of the plain one and left it without."""
        with self._lock:
            self.current = secured
            if self._ended:
                self._shut()

    def _shut(self) -> None:
        # Not the TLS socket's own method, which would have its thread go on in clear text.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.current, socket.SHUT_RDWR)


class Listener:
    """Serves until stopped."""

    def __init__(
        self,
        answering: Answering,
        opened: socket.socket,
        bounds: Bounds,
        context: Callable[[], ssl.SSLContext | None],
        *,
        name: str = "http",
        sweep: Callable[[], None] = lambda: None,
    ) -> None:
        self.bounds = bounds
        self.connections = Connections(bounds, time.monotonic)
        self.answering = answering
        self._opened = opened
        self._context = context
        self._look = sweep
        self._stopping = threading.Event()
        self._name = name
        self._threads = [
            threading.Thread(target=self._accept, name=f"{name}-accept", daemon=True),
            threading.Thread(target=self._sweep, name=f"{name}-sweep", daemon=True),
        ]

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._opened.getsockname()[1])

    def start(self) -> None:
        """Begin to accept connections."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop accepting, and end all connections; answers that are being made are lost."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._opened.shutdown(socket.SHUT_RDWR)
        self._opened.close()
        for connection in self.connections.all():
            connection.socket.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(5.0)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                plain, address = self._opened.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                # Out of descriptors, say: leave time for some to be closed.
                log.warning("accepting a connection: %s", error)
                self._stopping.wait(0.1)
                continue
            held = _OpenSocket(plain)
            connection = self.connections.admit(str(address[0]), held)
            if connection is None:
                plain.close()
                continue
            arguments = (connection, held, address)
            try:
                threading.Thread(target=self._serve, args=arguments, name=self._name, daemon=True).start()
            except RuntimeError as error:  # no more threads
                log.warning("serving a connection: %s", error)
                self.connections.remove(connection)
                plain.close()

    def _serve(self, connection: Connection, held: _OpenSocket, address: Any) -> None:
        try:
            with contextlib.closing(held.current) as plain:
                plain.settimeout(max(self.bounds.idle_seconds, self.bounds.request_seconds))
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                context = self._context()
                if context is None:
                    _Handler(plain, address, self, connection, "")
                    return
                # The handshake comes second: a client that drips it is ended from outside, by the socket that counts.
                unshaken = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                with unshaken as secured:
                    held.replace(secured)
                    secured.do_handshake()
                    name = client_name(secured.getpeercert()) if context.verify_mode is ssl.CERT_REQUIRED else ""
                    _Handler(secured, address, self, connection, name)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; a socket that was ended is a ValueError
            log.debug("connection of %s: %s", address, error)
        except Exception:
            log.exception("connection of %s", address)
        finally:
            self.connections.remove(connection)

    def _sweep(self) -> None:
        while not self._stopping.wait(SWEEP_SECONDS):
            for connection in self.connections.late():
                connection.socket.end()
            self._look()


class _Head:
    """Reads a request's head line by line up to a number of bytes, and its body."""

    def __init__(self, stream: Any, most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes
        self._left_bytes = most_bytes

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._stream.readline(min(limit, self._left_bytes + 1) if limit >= 0 else self._left_bytes + 1)
        self._left_bytes -= len(line)
        if self._left_bytes < 0:
            raise http.client.LineTooLong("header")
        return line

    def begin(self) -> bool:
        """Wait for the first byte of a request; False at the end of the connection."""
        self._left_bytes = self._most_bytes
        return bool(self._stream.peek(1))

    def read(self, size: int) -> bytes:
        return bytes(self._stream.read(size))

    def close(self) -> None:
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    """One connection, request by request."""

    protocol_version = "HTTP/1.1"
    # Head and body of an answer leave in one packet.
    wbufsize = -1

    def __init__(
        self, opened: socket.socket, address: Any, listener: Listener, connection: Connection, client: str
    ) -> None:
        self._listener = listener
        self._connections = listener.connections
        self._connection = connection
        self._client = client
        super().__init__(opened, address, cast(Any, listener))

    def setup(self) -> None:
        super().setup()
        self._head = _Head(self.rfile, self._listener.bounds.header_bytes)
        self.rfile = cast(Any, self._head)

    def handle_one_request(self) -> None:
        """Wait for a request, and answer it within its time."""
        self._connections.idle(self._connection)
        if not self._head.begin():
            self.close_connection = True
            return
        self._connections.reading(self._connection)
        try:
            super().handle_one_request()
        except http.client.LineTooLong:
            self.requestline, self.command = "", ""
            self._refuse(431, "the headers are too long")

    def _answer(self) -> None:
        refused = _refusal(self.headers, self._listener.bounds.body_bytes)
        if refused is not None:
            # The rest of the request is not read, so the connection cannot be used again.
            self.close_connection = True
            self._send(refused)
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            self.close_connection = True
            return
        request = Request(self.command, self.path, body, self._client, self.headers.get("Host", ""))
        self._connections.answering(self._connection)
        try:
            reply = self._listener.answering.answer(request)
        except Exception:
            log.exception("%s %s", self.command, request.path)
            reply = Reply.text(500, "internal error; see the log")
        self._connections.sending(self._connection)
        self._send(reply)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 (the base class's names)

    def handle_expect_100(self) -> bool:
        """Ask for the body at once, also when it is awaited."""
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

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
        self.close_connection = True
        self._send(Reply.text(status, why))

    def _send(self, reply: Reply) -> None:
        # What came in another version, or in none, gets a status line too.
        self.request_version = self.protocol_version
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply.body)
        self.wfile.flush()


def listen(
    answering: Answering,
    address: str,
    port: int,
    *,
    tls: TlsFiles | ssl.SSLContext | None = None,
    bounds: Bounds | None = None,
    public: bool = False,
    name: str = "http",
) -> Listener:
    """Serve in the background until `stop`. Port 0 takes a free one (see `port`).

    `public` says that the answers are for all. A context is its owner's to renew; files are looked at. Raises
    ExposedError, or OSError for address or files.
    """
    if tls is None and not public and not is_loopback(address):
        raise ExposedError(f"{address} is reached by others: give TLS files, or serve on 127.0.0.1")
    bounds = bounds or Bounds()
    reloaded = ReloadedContext(tls, time.monotonic) if isinstance(tls, TlsFiles) else None
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.create_server((address, port), family=family, backlog=128)
    if reloaded is not None:
        listener = Listener(answering, opened, bounds, lambda: reloaded.context, name=name, sweep=reloaded.look)
    else:
        context = cast(ssl.SSLContext | None, tls)
        listener = Listener(answering, opened, bounds, lambda: context, name=name)
    listener.start()
    return listener


def _refusal(headers: Any, most_bytes: int) -> Reply | None:
    """Why a request is not read, None when it is."""
    if headers.get("Origin") is not None:
        return Reply.text(403, "requests of pages in a browser are not answered")
    if headers.get("Transfer-Encoding") is not None:
        return Reply.text(411, "send a Content-Length")
    texts = headers.get_all("Content-Length") or ["0"]
    text = texts[0]
    if len(texts) > 1 or not (text.isascii() and text.isdigit()):
        return Reply.text(400, "Content-Length is no number")
    if len(text) > 12 or int(text) > most_bytes:
        return Reply.text(413, f"more than {most_bytes} bytes")
    return None
