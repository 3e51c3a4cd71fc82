"""HTTP to the API server: one pooled request at a time, failures as this package's errors.

Requests bypass the official client's models, which cost more than the network. An open stream occupies one pooled
connection.
"""

import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

import urllib3

from cluster import errors
from cluster.sending.connection import Connection
from cluster.settings import ClientSettings

MAX_IDLE = 64
"""Connections for writes that are kept open."""
_PLAIN = re.compile(r"[ -~]*")
_TARGET = re.compile(r"[!-~]+")


class HttpResponse(NamedTuple):
    """An answered request."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address, connection pool and credentials of the API server.

    `authorization` returns the header's value ("" for none) and is asked per request, because service
    account tokens rotate on disk.
    """

    url: str
    pools: urllib3.PoolManager
    authorization: Callable[[], str]
    quick_authorization: bool = True
    """Asking for the value takes no time: no program is run for it."""


class Request(NamedTuple):
    """A request to send; `path` starts with a slash, `content_type` describes `body`."""

    method: str
    path: str
    parameters: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def where(self) -> str:
        """Method and path, as error messages name a request."""
        return f"{self.method} {self.path}"


def always() -> bool:
    """Allow every write."""
    return True


class Transport:
    """Sends requests to one endpoint; safe to share between threads.

    `may_write` is asked right before the bytes of a write go out: credentials and a connection take their time.
    """

    def __init__(self, endpoint: Endpoint, settings: ClientSettings, may_write: Callable[[], bool] = always) -> None:
        self._endpoint = endpoint
        self._may_write = may_write
        self._base_path = urllib3.util.parse_url(endpoint.url).path or ""
        self._pool = endpoint.pools.connection_from_url(endpoint.url)
        self._headers = {"Accept": "application/json", "User-Agent": settings.user_agent}
        self._connect_seconds = settings.connect_seconds
        self._answer_seconds = settings.timeout_seconds
        self._host = urllib3.util.parse_url(endpoint.url).netloc or ""
        self._lines = f"Host: {self._host}\r\nAccept-Encoding: identity\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in self._headers.items()
        )
        self._idle: list[Connection] = []
        """Connections for writes, the one used last at the end."""

    def send(self, request: Request, timeout_seconds: float) -> HttpResponse:
        """One attempt; returns a 2xx response or raises `ApiError` with the transport's error chained."""
        written = self.encoded(request) if request.method != "GET" and self._pool.proxy is None else None
        if written is not None:
            return self._write(request, written, timeout_seconds)
        response = self._open(request, timeout_seconds, stream=False)
        if not 200 <= response.status < 300:
            raise errors.from_response(response.status, response.data, response.headers, request.where)
        return HttpResponse(response.status, response.data)

    def stream(self, request: Request, read_seconds: float) -> "Stream":
        """Open a long-lived GET whose body arrives as lines; silence over `read_seconds` is an error."""
        response = self._open(request, read_seconds, stream=True)
        if response.status != 200:
            body = response.read()
            response.release_conn()
            raise errors.from_response(response.status, body, response.headers, request.where)
        return Stream(response, request.where)

    def close(self) -> None:
        """Drop idle connections; requests under way finish."""
        self._endpoint.pools.clear()
        while self._idle:
            self._idle.pop().close()

    def _write(self, request: Request, data: bytes, timeout_seconds: float) -> HttpResponse:
        connection = self._taken()
        if connection is None:
            connection = Connection(self.open_socket())
        if not self._may_write():
            connection.close()
            raise errors.Withheld(f"{request.where}: not sent, this process may not write any more")
        try:
            answer = connection.exchange(data, timeout_seconds)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise _unavailable(request.where, error) from error
            raise
        if answer.reusable and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        if not 200 <= answer.status < 300:
            raise errors.from_response(answer.status, answer.body, answer.headers, request.where)
        return HttpResponse(answer.status, answer.body)

    def _taken(self) -> Connection | None:
        """A kept connection that the server has not closed."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            # Nothing is due from the server: what can be read is its end.
            if not urllib3.util.wait_for_read(connection.socket, 0.0):
                return connection
            connection.close()

    def open_socket(self) -> socket.socket:
        """Open a connection for writes. Raises `errors.Unavailable`; nothing was sent then."""
        where = f"connection to {self._host}"
        if self._pool.proxy is not None:
            raise errors.Unavailable(f"{where}: through a proxy", ambiguous=False)
        # The pool's own way to a connection, for its TLS settings; it would wrap what it sends and receives.
        made: Any = self._pool._new_conn()
        made.timeout = self._connect_seconds
        try:
            made.connect()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            made.close()
            raise _unavailable(where, error, unsent=True) from error
        opened: socket.socket = made.sock
        # What the server has not acknowledged by then is given up by the kernel too, and does not go out later.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(1000 * self._answer_seconds)))
        return opened

    @property
    def quick(self) -> bool:
        """Whether `encoded` answers at once and `open_socket` reaches the server."""
        return self._pool.proxy is None and self._endpoint.quick_authorization

    def encoded(self, request: Request) -> bytes | None:
        """The request as it is sent over a connection of `open_socket`; None for one that is not plain ASCII."""
        target, authorization, body = self._target(request), self._endpoint.authorization(), request.body or b""
        if not _TARGET.fullmatch(target) or not _PLAIN.fullmatch(authorization):
            return None
        granted = f"Authorization: {authorization}\r\n" if authorization else ""
        head = (
            f"{request.method} {target} HTTP/1.1\r\n{self._lines}{granted}"
            f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode("ascii") + body

    def _open(self, request: Request, read_seconds: float, *, stream: bool) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.urlopen(
                request.method,
                self._target(request),
                body=request.body,
                headers=self._request_headers(request),
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=self._connect_seconds, read=read_seconds),
                preload_content=not stream,
            )
        except urllib3.exceptions.HTTPError as error:
            raise _unavailable(request.where, error) from error

    def _target(self, request: Request) -> str:
        path = self._base_path.rstrip("/") + request.path
        return f"{path}?{urlencode(request.parameters)}" if request.parameters else path

    def _request_headers(self, request: Request) -> dict[str, str]:
        headers = dict(self._headers)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        authorization = self._endpoint.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers


class Stream:
    """Lines of an open response, read in one thread; `stop` may be called from any and ends the iteration."""

    def __init__(self, response: urllib3.BaseHTTPResponse, where: str) -> None:
        self._response = response
        self._where = where
        self._stopped = False

    def batches(self) -> Iterator[list[bytes]]:
        """The complete lines of each chunk as it arrives; ends when the server ends the body.

        Raises `Unavailable` when the connection breaks or stays silent too long.
        """
        rest = b""
        try:
            for chunk in self._response.stream(1 << 20):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    yield lines
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Stopping a TLS stream can surface as ValueError in the reader.
            if not self._stopped:
                raise _unavailable(self._where, error) from error
        finally:
            self._response.close()

    def stop(self) -> None:
        """Wake the reader, whose iteration ends. Closing instead would wait for the reader's lock."""
        self._stopped = True
        # A response whose body has ended has no socket left to shut down.
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        """Give the connection up. Only for the reading thread."""
        self._response.close()


def _unavailable(where: str, error: Exception, *, unsent: bool = False) -> errors.Unavailable:
    # Nothing was sent when no connection came up; after that the server may have acted.
    unsent = unsent or isinstance(error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)
    distrusted = bool(error.args) and isinstance(error.args[0], ssl.SSLCertVerificationError)
    return errors.Unavailable(f"{where}: {error}", ambiguous=not (unsent or distrusted))
